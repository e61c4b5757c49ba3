// Which of a panel's field settings are applied: Grafana's own lists are not in its library.
import {
  FieldConfigOptionsRegistry,
  FieldConfigPropertyItem,
  Registry,
  identityOverrideProcessor,
  standardTransformers,
  standardTransformersRegistry,
} from '@grafana/data';

const STANDARD = ['unit', 'min', 'max', 'decimals', 'displayName', 'noValue', 'thresholds', 'mappings', 'color', 'links'];
const CUSTOM = [
  'drawStyle',
  'lineWidth',
  'lineStyle',
  'lineInterpolation',
  'fillOpacity',
  'gradientMode',
  'showPoints',
  'pointSize',
  'stacking',
  'spanNulls',
  'thresholdsStyle',
  'axisPlacement',
  'axisLabel',
  'axisSoftMin',
  'axisSoftMax',
  'axisGridShow',
  'hideFrom',
  'cellOptions',
  'align',
  'width',
  'minWidth',
];

function item(path: string, isCustom: boolean): FieldConfigPropertyItem {
  return {
    id: isCustom ? `custom.${path}` : path,
    path,
    name: path,
    isCustom,
    editor: () => null,
    override: () => null,
    process: identityOverrideProcessor,
    shouldApply: () => true,
    settings: {},
  };
}

export const FIELD_SETTINGS: FieldConfigOptionsRegistry = new Registry(() => [
  ...STANDARD.map((path) => item(path, false)),
  ...CUSTOM.map((path) => item(path, true)),
]);

export function registerTransformations(): void {
  const used = [standardTransformers.mergeTransformer, standardTransformers.organizeFieldsTransformer];
  standardTransformersRegistry.setInit(() =>
    used.map((transformation) => ({
      id: transformation.id,
      name: transformation.name,
      editor: () => null,
      transformation: () => Promise.resolve(transformation),
      imageDark: '',
      imageLight: '',
    }))
  );
}
