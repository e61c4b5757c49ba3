// One panel's picture, by the components that Grafana draws it with.
import {
  applyFieldOverrides,
  cacheFieldDisplayNames,
  DataFrame,
  DataTransformerConfig,
  DisplayValueAlignmentFactors,
  FieldColorModeId,
  FieldConfigSource,
  FieldDisplay,
  getDisplayValueAlignmentFactors,
  getFieldDisplayValues,
  GrafanaTheme2,
  ReduceDataOptions,
  TimeRange,
  transformDataFrame,
  VizOrientation,
} from '@grafana/data';
import { VizLegendOptions } from '@grafana/schema';
import { BarGauge, BigValue, TimeSeries, UPlotConfigBuilder, VizRepeater } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { ReactElement } from 'react';
import { firstValueFrom } from 'rxjs';
import { FIELD_SETTINGS } from './fields';
import { Series, seriesFrames, tableFrame, Target } from './frames';

export interface Panel {
  id: number;
  type: string;
  title: string;
  description?: string;
  gridPos: { x: number; y: number; w: number; h: number };
  targets?: Target[];
  fieldConfig?: FieldConfigSource;
  transformations?: DataTransformerConfig[];
  options: any;
}
export interface Mark {
  color: string;
  from: number;
  to: number;
}
export interface Surroundings {
  range: TimeRange;
  stepMs: number;
  theme: GrafanaTheme2;
  marks: Mark[];
}

const asWritten = (text: string): string => text;

export async function framesOf(panel: Panel, answers: Record<string, Series[]>, around: Surroundings) {
  const made = (panel.targets ?? []).flatMap((target) => {
    const answer = answers[target.refId] ?? [];
    return target.format === 'table' ? [tableFrame(target, answer)] : seriesFrames(target, answer, around.stepMs);
  });
  const transformed = panel.transformations?.length
    ? await firstValueFrom(transformDataFrame(panel.transformations, made))
    : made;
  const frames = applyFieldOverrides({
    data: transformed,
    fieldConfig: settings(panel),
    fieldConfigRegistry: FIELD_SETTINGS,
    replaceVariables: asWritten,
    theme: around.theme,
    timeZone: 'utc',
  });
  cacheFieldDisplayNames(frames);
  return frames;
}

// Grafana gives each kind of panel its own default of this.
function settings({ type, fieldConfig }: Panel): FieldConfigSource {
  const mode = type === 'timeseries' ? FieldColorModeId.PaletteClassic : FieldColorModeId.Thresholds;
  return { overrides: [], ...fieldConfig, defaults: { color: { mode }, ...fieldConfig?.defaults } };
}

// Annotations: a line where something happened, an area where it lasted.
function mark(builder: UPlotConfigBuilder, { marks, theme }: Surroundings): void {
  builder.addHook('draw', (plot) => {
    const { left, top, width, height } = plot.bbox;
    plot.ctx.save();
    plot.ctx.beginPath();
    plot.ctx.rect(left, top, width, height);
    plot.ctx.clip();
    for (const { color, from, to } of marks) {
      const [x, end] = [plot.valToPos(from, 'x', true), plot.valToPos(to, 'x', true)];
      plot.ctx.fillStyle = plot.ctx.strokeStyle = theme.visualization.getColorByName(color);
      plot.ctx.globalAlpha = 0.1;
      plot.ctx.fillRect(x, top, end - x, height);
      plot.ctx.globalAlpha = 1;
      plot.ctx.setLineDash([4, 4]);
      plot.ctx.beginPath();
      for (const at of new Set([x, end])) {
        plot.ctx.moveTo(at, top);
        plot.ctx.lineTo(at, top + height);
      }
      plot.ctx.stroke();
    }
    plot.ctx.restore();
  });
}

function graph(panel: Panel, frames: DataFrame[], around: Surroundings, width: number, height: number) {
  const marked = new WeakSet<UPlotConfigBuilder>();
  const legend: VizLegendOptions = panel.options.legend;
  return (
    <TimeSeries frames={frames} timeRange={around.range} timeZone="utc" width={width} height={height} legend={legend}>
      {(builder) => {
        if (!marked.has(builder)) {
          marked.add(builder);
          mark(builder, around);
        }
        return null;
      }}
    </TimeSeries>
  );
}

function values(panel: Panel, frames: DataFrame[], theme: GrafanaTheme2): FieldDisplay[] {
  const reduceOptions: ReduceDataOptions = panel.options.reduceOptions;
  return getFieldDisplayValues({
    fieldConfig: settings(panel),
    reduceOptions,
    replaceVariables: asWritten,
    theme,
    data: frames,
    timeZone: 'utc',
  });
}

interface Drawn {
  value: FieldDisplay;
  width: number;
  height: number;
  orientation: VizOrientation;
  alignmentFactors: DisplayValueAlignmentFactors;
  count: number;
}

function repeated(
  shown: FieldDisplay[],
  orientation: VizOrientation,
  size: { width: number; height: number },
  draw: (one: Drawn) => ReactElement
) {
  return (
    <VizRepeater
      {...size}
      getValues={() => shown}
      getAlignmentFactors={(all: FieldDisplay[]) => getDisplayValueAlignmentFactors(all)}
      renderValue={draw}
      source={shown}
      renderCounter={0}
      orientation={orientation}
      itemSpacing={8}
    />
  );
}

function stat(panel: Panel, frames: DataFrame[], { theme }: Surroundings, width: number, height: number) {
  const { colorMode, graphMode, justifyMode, textMode, orientation } = panel.options;
  return repeated(values(panel, frames, theme), orientation, { width, height }, (one) => (
    <BigValue
      {...{ theme, colorMode, graphMode, justifyMode, textMode }}
      value={one.value.display}
      width={one.width}
      height={one.height}
      alignmentFactors={one.alignmentFactors}
      count={one.count}
    />
  ));
}

function bars(panel: Panel, frames: DataFrame[], { theme }: Surroundings, width: number, height: number) {
  const { displayMode, valueMode, namePlacement, showUnfilled, orientation } = panel.options;
  return repeated(values(panel, frames, theme), orientation, { width, height }, (one) => (
    <BarGauge
      {...{ theme, displayMode, namePlacement, showUnfilled }}
      valueDisplayMode={valueMode}
      value={one.value.display}
      field={one.value.field}
      display={one.value.view?.getFieldDisplayProcessor(one.value.colIndex!)}
      width={one.width}
      height={one.height}
      orientation={one.orientation}
      alignmentFactors={one.alignmentFactors}
    />
  ));
}

function rows(panel: Panel, frames: DataFrame[], around: Surroundings, width: number, height: number) {
  const { sortBy } = panel.options;
  return <TableNG data={frames[0]} {...{ width, height, sortBy }} timeRange={around.range} />;
}

type Draw = (panel: Panel, frames: DataFrame[], around: Surroundings, width: number, height: number) => ReactElement;

const KINDS: Record<string, Draw> = { timeseries: graph, stat, bargauge: bars, table: rows };

export function picture(panel: Panel, frames: DataFrame[], around: Surroundings, width: number, height: number) {
  const draw = KINDS[panel.type];
  if (!draw) {
    return <p>The preview does not draw panels of type {panel.type}.</p>;
  }
  const empty = frames.every((frame) => frame.length === 0);
  if (empty && panel.type !== 'stat') {
    return <p style={{ textAlign: 'center' }}>No data</p>;
  }
  return draw(panel, frames, around, width, height);
}
