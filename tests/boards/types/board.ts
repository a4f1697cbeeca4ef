// What a dashboard of config/grafana may contain, by the types that Grafana publishes for its dashboards, its panels of
// kind timeseries and stat, and queries of Prometheus.
//
// Grafana fills in what is missing, so every field may be; but no other field may be there, and every value has its type.

import type * as dashboard from '@grafana/grafana-foundation-sdk/dashboard';
import type * as prometheus from '@grafana/grafana-foundation-sdk/prometheus';
import type * as stat from '@grafana/grafana-foundation-sdk/stat';
import type * as timeseries from '@grafana/grafana-foundation-sdk/timeseries';

// The values of an enumeration as they are in JSON.
type Value<T> = T extends string
  ? `${T}`
  : T extends number
    ? number extends T
      ? number
      : `${T}` extends `${infer N extends number}`
        ? N
        : never
    : T;

// A type as it is in JSON: without methods, and with every field optional.
type Json<T> = T extends string | number | boolean | null | undefined
  ? Value<T>
  : T extends readonly (infer Item)[]
    ? Json<Item>[]
    : T extends object
      ? { [K in keyof T as T[K] extends (...all: never[]) => unknown ? never : K]?: Json<T[K]> }
      : T;

// The types of a panel's options and of its own settings of fields are those of its plugin.
type PanelOf<Type extends string, Options, Custom> = Json<
  Omit<dashboard.Panel, 'type' | 'options' | 'fieldConfig' | 'targets'>
> & {
  type: Type;
  options: Json<Options>;
  fieldConfig: {
    defaults: Json<Omit<dashboard.FieldConfig, 'custom'>> & { custom: Custom };
    overrides: never[];
  };
  targets: Json<prometheus.Dataquery>[];
};

type Row = Json<Omit<dashboard.RowPanel, 'type' | 'panels'>> & { type: 'row'; panels: never[] };

type Panel =
  | Row
  | PanelOf<'timeseries', timeseries.Options, Json<timeseries.FieldConfig>>
  | PanelOf<'stat', stat.Options, Record<string, never>>;

export type Board = Json<Omit<dashboard.Dashboard, 'panels'>> & { panels: Panel[] };
