//! `config/fairgate.yaml` and `docs/reference/configuration.md` are generated from the declared keys: here they are generated
//! again and compared. With `FAIRGATE_BLESS=1` they are written instead.

use std::fmt::Write as _;

use super::*;

/// What stands above the first key of `config/fairgate.yaml`.
const SAMPLE_HEAD: &str = "\
# Every configuration key with its default value: used as it is, this file changes nothing.
#
# Copy the file, keep the keys that you change, and check the result with `fairgate check --config FILE`.
# A key that is absent or null has its default; \"\" means \"none\". Durations are written as 500ms, 10s or
# 1m30s, sizes as 64Ki or 1Mi. Relative paths are relative to the directory of this file. Unknown keys
# are errors.
#
# SIGHUP reads this file, and the files it names, again. Keys marked (reload) apply at once. A change to
# any other key is logged and takes effect after a restart. Policy files and the files marked (followed)
# need no SIGHUP: they are read again all the time, and changed contents are in use within three seconds.
apiVersion: fairgate.dev/v1alpha1
kind: Configuration
";

/// What stands above the first key of the reference.
const PAGE_HEAD: &str = "\
# Configuration

<!-- Generated from crates/config/src/keys.rs by crates/config/src/tests/generated.rs. Do not edit. -->

Every key of the configuration file. An absent or null key has its default; `\"\"` means none. Durations are written `500ms`,
`10s`, `1m30s`, sizes `64Ki`, `1Mi`. Relative paths begin at the directory of the file. Unknown keys are refused.
*Reload*: SIGHUP applies a change of this key; all others take effect at a restart. Files marked (followed) are
read again every second; changed contents need no SIGHUP.

[`config/fairgate.yaml`](../../config/fairgate.yaml) is a file with every key and its default.

| key | value | default | range | reload | meaning |
|---|---|---|---|---|---|
| `apiVersion` | text | `fairgate.dev/v1alpha1` | | | Required. |
| `kind` | text | `Configuration` | | | Required. |
";

/// Compares a file of the repository with what was generated.
#[track_caller]
fn assert_generated(file: &str, generated: &str) {
    let path = repository().join(file);
    if std::env::var_os("FAIRGATE_BLESS").is_some() {
        fs::write(&path, generated).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap();
    let lines = found.lines().zip(generated.lines());
    let differing: Vec<_> = lines.filter(|(found, now)| found != now).take(5).collect();
    assert!(
        found == generated,
        "{file} is out of date; write it again with FAIRGATE_BLESS=1 cargo test -p fairgate-config generated; \
         found and generated: {differing:#?}"
    );
}

/// The default as written in a file.
fn written_default(key: &ConfigKey) -> Option<&'static str> {
    key.default.map(|default| match default {
        "" => "\"\"",
        default => default,
    })
}

/// Each key or mapping, with the one whose text explains it: itself, the last one with a text beside it, or what explains the
/// mapping that it is in.
fn explained() -> impl Iterator<Item = (&'static ConfigKey, &'static ConfigKey)> {
    let mut explained: Vec<&ConfigKey> = Vec::new();
    // For each depth the last key with a text.
    let mut last: Vec<Option<&ConfigKey>> = Vec::new();
    for key in KEYS {
        let depth = key.path.matches('.').count();
        last.resize(depth + 1, None);
        if !key.text.is_empty() {
            last[depth] = Some(key);
        }
        let parent = key.path.rsplit_once('.').map(|(parent, _)| parent);
        let above = KEYS.iter().position(|key| Some(key.path) == parent);
        let by = last[depth].or_else(|| explained.get(above?).copied());
        explained.push(by.unwrap_or_else(|| panic!("{} has no text", key.path)));
    }
    KEYS.iter().zip(explained)
}

#[test]
fn the_sample_is_that_of_the_keys() {
    let mut sample = SAMPLE_HEAD.to_owned();
    for key in KEYS {
        let parents = key.path.matches('.').count();
        if parents == 0 {
            sample.push('\n');
        }
        let indent = "  ".repeat(parents);
        let mut reloaded = explained().filter(|(key, _)| key.reload);
        let mark = if reloaded.any(|(_, by)| by.path == key.path) {
            " (reload)"
        } else {
            ""
        };
        let text = key.text.join(&*format!("\n{indent}#"));
        if !text.is_empty() {
            let _ = writeln!(sample, "{indent}#{text}{mark}");
        }
        let name = key.path.rsplit('.').next().unwrap();
        let value = written_default(key).map(|default| format!(" {default}"));
        let _ = writeln!(sample, "{indent}{name}:{}", value.unwrap_or_default());
    }
    assert_generated("config/fairgate.yaml", &sample);
}

#[test]
fn the_reference_is_that_of_the_keys() {
    let mut page = PAGE_HEAD.to_owned();
    let notations = Config::notations();
    for (key, by) in explained() {
        let path = key.path;
        let meaning = if path == by.path {
            meaning(key.text)
        } else {
            format!("See `{}`.", by.path)
        };
        let Some(default) = written_default(key) else {
            let _ = writeln!(page, "| **`{path}`** | | | | | {meaning} |");
            continue;
        };
        let notation = &notations[path];
        let range = key
            .range
            .map_or_else(String::new, |range| range.join(" to "));
        let reload = if key.reload { "yes" } else { "" };
        let _ = writeln!(
            page,
            "| `{path}` | {notation} | `{default}` | {range} | {reload} | {meaning} |"
        );
    }
    assert_generated("docs/reference/configuration.md", &page);
}

/// The lines of a text as one cell of a table. Items of a list, which begin with three spaces and a word in a column of its own,
/// begin a new line.
fn meaning(text: &[&str]) -> String {
    let mut cell = String::new();
    for line in text {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_item = line.starts_with("   ") && !line.starts_with("    ");
        match line.trim().split_once("  ") {
            Some((word, rest)) if is_item => {
                let _ = write!(cell, "<br>`{word}`: {}", words(rest));
            }
            _ => {
                let space = if cell.is_empty() { "" } else { " " };
                let _ = write!(cell, "{space}{}", words(line));
            }
        }
    }
    cell.replace('|', "\\|")
}

#[test]
fn a_text_is_true_of_all_keys_that_it_explains() {
    for (key, by) in explained() {
        let path = key.path;
        if key.default.is_none() {
            // What stands above another key does not explain a mapping, which has keys of its own.
            let is_above = path.starts_with(&format!("{}.", by.path));
            assert!(path == by.path || is_above, "{path} has no text");
            continue;
        }
        let mut others =
            explained().filter(|(key, other)| key.default.is_some() && other.path == by.path);
        assert!(
            others.all(|(other, _)| other.reload == key.reload),
            "{path}: {by:?}"
        );
        let is_marked = by.text.iter().any(|line| line.contains("followed)"));
        assert_eq!(key.followed, is_marked, "{path}: {by:?}");
    }
}

#[test]
fn a_value_beyond_the_declared_range_of_its_key_is_refused() {
    for (key, [_, high]) in KEYS.iter().filter_map(|key| Some((key, key.range?))) {
        let beyond = match Config::notations()[key.path].as_str() {
            "duration" => json!(format!("{high}1ns")),
            _ => json!(
                values::Setting::read(&keys::value(high))
                    .map(|most: u64| most + 1)
                    .unwrap()
            ),
        };
        let nested = key
            .path
            .rsplit('.')
            .fold(beyond, |value, part| json!({part: value}));
        let finding = &read(nested).findings[0];
        assert_eq!((&*finding.field, finding.is_error()), (key.path, true));
        assert!(finding.message.ends_with(" is out of range"), "{finding}");
        assert!(
            finding.remedy.ends_with(&format!(" to {high}")),
            "{finding}"
        );
    }
}

#[test]
fn the_default_weight_of_a_tenant_is_that_of_the_core() {
    use fairgate_core::apf::policy::PolicySettings;
    let weight = Config::read(None).config.flow_control.tenant_weight;
    assert_eq!(weight, PolicySettings::DEFAULT_TENANT_WEIGHT);
}
