// What Prometheus answered, as Grafana's data frames.
import { DataFrame, FieldType, Labels, toDataFrame } from '@grafana/data';

export type Sample = [number, string];
export interface Series {
  metric: Labels;
  value?: Sample;
  values?: Sample[];
}
export interface Target {
  expr: string;
  refId: string;
  format?: string;
  legendFormat: string;
}

function legend(target: Target, labels: Labels): string | undefined {
  if (target.legendFormat === '__auto') {
    return undefined;
  }
  return target.legendFormat.replace(/\{\{(\w+)\}\}/g, (_, label: string) => labels[label] ?? '');
}

function samples(series: Series): Sample[] {
  return series.values ?? (series.value ? [series.value] : []);
}

// A frame a series.
export function seriesFrames(target: Target, answer: Series[], stepMs: number): DataFrame[] {
  return answer.map((series) => {
    const points = samples(series);
    return toDataFrame({
      refId: target.refId,
      fields: [
        // The interval lets gaps be seen.
        { name: 'Time', type: FieldType.time, config: { interval: stepMs }, values: points.map(([at]) => at * 1000) },
        {
          name: 'Value',
          type: FieldType.number,
          labels: series.metric,
          config: { displayNameFromDS: legend(target, series.metric) },
          values: points.map(([, value]) => Number(value)),
        },
      ],
    });
  });
}

// One frame with a row a series; labels are columns.
export function tableFrame(target: Target, answer: Series[]): DataFrame {
  const labels = [...new Set(answer.flatMap((series) => Object.keys(series.metric)))].sort();
  const last = answer.map((series) => samples(series).at(-1)!);
  return toDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: last.map(([at]) => at * 1000) },
      ...labels.map((label) => ({
        name: label,
        type: FieldType.string,
        values: answer.map((series) => series.metric[label] ?? ''),
      })),
      { name: `Value #${target.refId}`, type: FieldType.number, values: last.map(([, value]) => Number(value)) },
    ],
  });
}
