//! `docs/reference/configuration.md` is generated from the code and `config/fairgate.yaml`: here it is generated again and
//! compared. With `FAIRGATE_BLESS=1` it is written instead.

use std::{collections::BTreeMap, fmt::Write as _};

use super::*;

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

/// A key or a mapping of `config/fairgate.yaml`, in the order of the file.
#[derive(Debug)]
struct SampleKey {
    path: String,
    /// `None` for a mapping.
    default: Option<String>,
    meaning: String,
}

/// Whether a key has no comment of its own.
fn refers(key: &SampleKey) -> bool {
    key.meaning.starts_with("See `")
}

/// Reads the sample line by line: its comments are the meanings of the keys below them.
fn sample_keys(text: &str) -> Vec<SampleKey> {
    let mut keys: Vec<SampleKey> = Vec::new();
    // The keys that a line is nested in, and for each depth the last key with a comment of its own.
    let mut parents: Vec<&str> = Vec::new();
    let mut described: Vec<Option<String>> = Vec::new();
    let mut comment = String::new();
    for line in text.lines() {
        let content = line.trim_start();
        if let Some(words) = content.strip_prefix('#') {
            add_comment_line(&mut comment, words);
            continue;
        }
        let Some((key, value)) = content.split_once(':') else {
            comment.clear();
            continue;
        };
        let depth = (line.len() - content.len()) / 2;
        parents.truncate(depth);
        let parent = parents.join(".");
        parents.push(key);
        let path = parents.join(".");
        described.resize(depth + 1, None);
        let own = meaning_of(&std::mem::take(&mut comment));
        if !own.is_empty() {
            described[depth] = Some(path.clone());
        }
        let meaning = match &described[depth] {
            _ if !own.is_empty() => own,
            Some(sibling) => format!("See `{sibling}`."),
            None => {
                // The mapping itself may be explained elsewhere.
                let above = keys.iter().find(|key| key.path == parent);
                let above = above.filter(|key| refers(key));
                above.map_or_else(|| format!("See `{parent}`."), |key| key.meaning.clone())
            }
        };
        keys.push(SampleKey {
            path,
            default: Some(value.trim().to_owned()).filter(|value| !value.is_empty()),
            meaning,
        });
    }
    keys
}

#[test]
fn what_the_configuration_reference_refers_to_is_explained_there() {
    let sample = repository().join("config/fairgate.yaml");
    let sample = sample_keys(&fs::read_to_string(sample).unwrap());
    let explained: Vec<_> = (sample.iter())
        .filter(|key| !refers(key))
        .map(|key| format!("See `{}`.", key.path))
        .collect();
    for key in sample.iter().filter(|key| refers(key)) {
        // What stands above another key does not explain a mapping, which has keys of its own.
        let mut above = (key.path.match_indices('.')).map(|(end, _)| &key.path[..end]);
        let is_above = above.any(|path| key.meaning == format!("See `{path}`."));
        let is_mapping = key.default.is_none();
        assert!(
            explained.contains(&key.meaning) && (!is_mapping || is_above),
            "config/fairgate.yaml: {} has no comment: {}",
            key.path,
            key.meaning
        );
    }
}

/// Adds a line of a comment. Items of a list, which begin with three spaces and a word in a column of
/// its own, begin a new line.
fn add_comment_line(comment: &mut String, words: &str) {
    let is_item = words.starts_with("   ") && !words.starts_with("    ");
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.trim().split_once("  ") {
        Some((word, rest)) if is_item => {
            let _ = write!(comment, "<br>`{word}`: {}", plain(rest));
        }
        _ => {
            if !comment.is_empty() {
                comment.push(' ');
            }
            comment.push_str(&plain(words));
        }
    }
}

/// A comment without what the page shows in another column.
fn meaning_of(comment: &str) -> String {
    let comment = match comment.strip_suffix(": (reload)") {
        // A last sentence that lists the keys a reload applies.
        Some(rest) => {
            rest.rsplit_once(". ")
                .map_or(rest, |(before, _)| before)
                .to_owned()
                + "."
        }
        None => comment.replace("(reload)", ""),
    };
    comment.trim().replace("  ", " ").replace('|', "\\|")
}

#[test]
fn the_configuration_reference_is_that_of_the_code_and_the_sample() {
    let sample = repository().join("config/fairgate.yaml");
    let sample = sample_keys(&fs::read_to_string(sample).unwrap());
    let keys = KEYS.iter().filter(|key| key.default.is_some());
    let mut keys: BTreeMap<&str, _> = keys.map(|key| (key.path, key)).collect();
    let notations = Config::notations();
    let mut page = String::from(
        "# Configuration\n\n\
         <!-- Generated from crates/config and config/fairgate.yaml by crates/config/src/tests/generated.rs. Do not edit. -->\n\n\
         Every key of the configuration file. An absent or null key has its default; `\"\"` means none. Durations are written `500ms`,\n\
         `10s`, `1m30s`, sizes `64Ki`, `1Mi`. Relative paths begin at the directory of the file. Unknown keys are refused.\n\
         *Reload*: SIGHUP applies a change of this key; all others take effect at a restart. Files marked (followed) are\n\
         read again every second; changed contents need no SIGHUP.\n\n\
         [`config/fairgate.yaml`](../../config/fairgate.yaml) is a file with every key and its default.\n\n\
         | key | value | default | range | reload | meaning |\n|---|---|---|---|---|---|\n",
    );
    for entry in &sample {
        let SampleKey {
            path,
            default,
            meaning,
        } = entry;
        if ["apiVersion", "kind"].contains(&path.as_str()) {
            let _ = writeln!(
                page,
                "| `{path}` | text | `{}` | | | Required. |",
                default.as_deref().unwrap()
            );
            continue;
        }
        let Some(default) = default else {
            let _ = writeln!(page, "| **`{path}`** | | | | | {meaning} |");
            continue;
        };
        let key = keys
            .remove(&**path)
            .unwrap_or_else(|| panic!("{path} is no key"));
        let range = key
            .range
            .map_or_else(String::new, |range| range.join(" to "));
        let reload = if key.reload { "yes" } else { "" };
        let _ = writeln!(
            page,
            "| `{path}` | {} | `{default}` | {range} | {reload} | {meaning} |",
            notations[path],
        );
    }
    assert!(keys.is_empty(), "not in config/fairgate.yaml: {keys:?}");
    assert_generated("docs/reference/configuration.md", &page);
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
