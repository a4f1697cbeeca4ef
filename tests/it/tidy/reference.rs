//! The reference of the metrics, `docs/reference/metrics.md`, is generated from the code: here it is generated again
//! and compared. With `FAIRGATE_BLESS=1` it is written instead.
//!
//! Not here: the reference of the configuration (`crates/config/src/tests/generated.rs`).

use std::{fmt::Write as _, fs, path::Path};

use fairgate::observe::catalogue::{CELL_METRICS, FACADE_METRICS, MetricDef};

/// Compares a page with what was generated.
pub(super) fn is_up_to_date(page: &str, generated: &str) {
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
         <!-- Generated from crates/observe/src/metrics/catalogue.rs by tests/it/tidy/reference.rs. Do not edit. -->\n\n\
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
