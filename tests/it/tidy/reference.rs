//! The reference pages, `docs/reference/*.md`, are generated from the code: here they are generated again
//! and compared. With `FAIRGATE_BLESS=1` they are written instead.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use fairgate::{
    config::Config,
    observe::catalogue::{CELL_METRICS, FACADE_METRICS, MetricDef},
};

/// Compares a page with what was generated.
fn is_up_to_date(page: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    if std::env::var_os("FAIRGATE_BLESS").is_some() {
        fs::write(&path, generated).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap();
    let lines = found.lines().zip(generated.lines());
    let differing: Vec<_> = lines.filter(|(found, now)| found != now).take(5).collect();
    assert!(
        found == generated,
        "{page} is out of date; write it again with FAIRGATE_BLESS=1 cargo test --test it reference; \
         found and generated: {differing:#?}"
    );
}

#[test]
fn the_metrics_reference_is_that_of_the_catalogue() {
    let mut page = String::from(
        "# Metrics\n\n\
         <!-- Generated from crates/observe/src/catalogue.rs by tests/it/tidy/reference.rs. Do not edit. -->\n\n\
         Served at `/metrics` on the admin port in Prometheus' text format. Metrics whose names begin with `apiserver_` have the\n\
         names, labels and buckets of kube-apiserver, and a label `apiserver` that names the upstream; `fairgate_*` are fairgate's own.\n\n\
         *Stability* is as in Kubernetes: a STABLE metric keeps its name, type and labels; a BETA metric keeps at least its labels;\n\
         an ALPHA metric may change or be removed in any release.\n",
    );
    let of_kubernetes = |metric: &&MetricDef| metric.is_of_kubernetes();
    let all = || CELL_METRICS.iter().chain(FACADE_METRICS);
    metrics_table(
        &mut page,
        "Metrics of kube-apiserver",
        all().filter(of_kubernetes),
    );
    let own = all().filter(|metric| !of_kubernetes(metric));
    metrics_table(&mut page, "Metrics of fairgate", own);
    is_up_to_date("docs/reference/metrics.md", &page);
}

fn metrics_table<'m>(page: &mut String, title: &str, metrics: impl Iterator<Item = &'m MetricDef>) {
    let mut metrics: Vec<&MetricDef> = metrics.collect();
    metrics.sort_unstable_by_key(|metric| metric.name);
    let _ = writeln!(
        page,
        "\n## {title}\n\n| name | type | unit | stability | labels | meaning |\n|---|---|---|---|---|---|"
    );
    for metric in metrics {
        let labels: Vec<String> = metric
            .labels
            .iter()
            .map(|label| format!("`{label}`"))
            .collect();
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} | {} | {} |",
            metric.name,
            metric.metric_type.as_str(),
            metric.unit.as_str(),
            metric.stability.as_str(),
            labels.join(", "),
            metric.help,
        );
    }
}

#[test]
fn every_metric_is_defined_once_with_its_labels_in_order() {
    let mut names: Vec<&str> = CELL_METRICS
        .iter()
        .chain(FACADE_METRICS)
        .map(|metric| metric.name)
        .collect();
    names.sort_unstable();
    assert!(names.is_sorted_by(|one, next| one != next), "{names:?}");
    for metric in CELL_METRICS.iter().chain(FACADE_METRICS) {
        assert!(metric.labels.is_sorted(), "{}", metric.name);
        assert!(
            metric.help.ends_with('.') && !metric.help.contains('\n'),
            "{}",
            metric.name
        );
        let counts = metric.name.ends_with("_total");
        assert_eq!(
            counts,
            metric.metric_type.as_str() == "counter",
            "{}",
            metric.name
        );
    }
}

#[test]
fn the_documents_name_metrics_of_the_catalogue() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = fs::read_dir(root.join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let mut seen = 0;
    for page in pages.chain([root.join("README.md")]) {
        let text = fs::read_to_string(&page).unwrap();
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter(|word| is_metric(word)) {
            assert!(is_defined(name), "{}: no metric {name}", page.display());
            seen += 1;
        }
    }
    assert!(seen >= 8, "the documents name metrics: {seen}");
}

fn is_metric(word: &str) -> bool {
    let mut prefixes = ["apiserver_flowcontrol_", "apiserver_request_", "fairgate_"].iter();
    prefixes.any(|prefix| word.starts_with(prefix) && word.len() > prefix.len())
        // Names of crates look like this, too.
        && !["fairgate_core", "fairgate_proxy", "fairgate_call", "fairgate_apiserver"].contains(&word)
}

/// Whether `name` is a metric, or a series of a histogram.
fn is_defined(name: &str) -> bool {
    CELL_METRICS.iter().chain(FACADE_METRICS).any(|metric| {
        let suffix = name.strip_prefix(metric.name);
        suffix == Some("")
            || metric.metric_type.as_str() == "histogram"
                && ["_bucket", "_sum", "_count"].map(Some).contains(&suffix)
    })
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
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/fairgate.yaml");
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
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/fairgate.yaml");
    let sample = sample_keys(&fs::read_to_string(sample).unwrap());
    let mut keys: BTreeMap<String, _> = Config::keys()
        .into_iter()
        .map(|key| (key.path.clone(), key))
        .collect();
    let mut page = String::from(
        "# Configuration\n\n\
         <!-- Generated from crates/config and config/fairgate.yaml by tests/it/tidy/reference.rs. Do not edit. -->\n\n\
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
            .remove(path)
            .unwrap_or_else(|| panic!("{path} is no key"));
        let range = key.range.unwrap_or_default();
        let reload = if key.reload { "yes" } else { "" };
        let _ = writeln!(
            page,
            "| `{path}` | {} | `{default}` | {range} | {reload} | {meaning} |",
            key.notation,
        );
    }
    assert!(keys.is_empty(), "not in config/fairgate.yaml: {keys:?}");
    is_up_to_date("docs/reference/configuration.md", &page);
}
