// What a dashboard of config/grafana may contain, by the types that Grafana publishes for its dashboards, its panels of
// kinds timeseries, stat and table, and queries of Prometheus.
//
// Grafana fills in what is missing, so every field may be; but no other field may be there, and every value has its type.

import type * as dashboard from '@grafana/grafana-foundation-sdk/dashboard';
import type * as prometheus from '@grafana/grafana-foundation-sdk/prometheus';
import type * as common from '@grafana/grafana-foundation-sdk/common';
import type * as stat from '@grafana/grafana-foundation-sdk/stat';
import type * as table from '@grafana/grafana-foundation-sdk/table';
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

// What a column of a table has of its own.
type Property =
  | { id: 'unit'; value: string }
  | { id: 'thresholds'; value: Json<dashboard.ThresholdsConfig> }
  | { id: 'custom.cellOptions'; value: Json<common.TableColoredBackgroundCellOptions> };

type Override = { matcher: { id: 'byName'; options: string }; properties: Property[] };

// A column of the results of several queries, by the name that Grafana gives it.
type Column = 'Time' | 'priority_level' | 'server' | 'instance' | `Value #${'A' | 'B' | 'C' | 'D' | 'E' | 'F' | 'G' | 'H' | 'I'}`;

// What makes one table of the results of several queries.
type Transformation =
  | { id: 'merge'; options: Record<string, never> }
  | {
      id: 'organize';
      options: {
        excludeByName: Partial<Record<Column, boolean>>;
        renameByName: Partial<Record<Column, string>>;
        indexByName: Partial<Record<Column, number>>;
      };
    };

// The types of a panel's options and of its own settings of fields are those of its plugin.
type PanelOf<Type extends string, Options, Custom> = Json<
  Omit<dashboard.Panel, 'type' | 'options' | 'fieldConfig' | 'targets' | 'transformations'>
> & {
  type: Type;
  options: Json<Options>;
  fieldConfig: {
    defaults: Json<Omit<dashboard.FieldConfig, 'custom'>> & { custom: Custom };
    overrides: Override[];
  };
  targets: Json<prometheus.Dataquery>[];
  transformations?: Transformation[];
};

type Row = Json<Omit<dashboard.RowPanel, 'type' | 'panels'>> & { type: 'row'; panels: never[] };

type Panel =
  | Row
  | PanelOf<'timeseries', timeseries.Options, Json<timeseries.FieldConfig>>
  | PanelOf<'stat', stat.Options, Record<string, never>>
  | PanelOf<'table', table.Options, Record<string, never>>;

export type Board = Json<Omit<dashboard.Dashboard, 'panels'>> & { panels: Panel[] };
