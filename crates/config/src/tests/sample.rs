//! The samples under `config/` and the key lists agree with the code.

use super::*;

/// The paths of all leaves of `value`.
fn leaves(value: &Value, path: &str, out: &mut BTreeSet<String>) {
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                leaves(value, &path, out);
            }
        }
        _ => {
            out.insert(path.to_owned());
        }
    }
}

#[test]
fn the_sample_names_every_key_with_its_default() {
    let path = repository().join("config/fairgate.yaml");
    let text = fs::read(&path).unwrap();
    let mut written = BTreeSet::new();
    leaves(&yaml::documents(&text).unwrap()[0], "", &mut written);
    written.remove("apiVersion");
    written.remove("kind");

    let sample = Config::read(Some(&path));
    let defaults = Config::read(None);

    assert_eq!(sample.findings, []);
    assert_eq!(defaults.findings, []);
    let (sample, defaults) = (sample.config.effective, defaults.config.effective);
    let keys: BTreeSet<String> = defaults.keys().cloned().collect();
    let missing: Vec<_> = keys.difference(&written).collect();
    let unknown: Vec<_> = written.difference(&keys).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "in config/fairgate.yaml, add {missing:?} and remove {unknown:?}"
    );
    for (key, default) in &defaults {
        let value = sample.get(key);
        assert_eq!(value, Some(default), "{key} in config/fairgate.yaml");
    }
    assert_eq!(sample.len(), defaults.len());
}

#[test]
fn the_sample_says_which_keys_a_reload_applies() {
    let text = fs::read_to_string(repository().join("config/fairgate.yaml")).unwrap();
    let mut blocks = Vec::new();
    let mut comment = String::new();
    for line in text.lines() {
        match line.trim_start().strip_prefix('#') {
            Some(words) => comment.push_str(words),
            None if comment.contains("(reload)") => {
                let key = line.trim_start().split(':').next().unwrap();
                blocks.push(key.to_owned());
                comment.clear();
            }
            None => comment.clear(),
        }
    }
    for ConfigKey { path, .. } in KEYS.iter().filter(|key| key.reload) {
        let named = |block: &String| path.split('.').any(|part| part == block);
        assert!(blocks.iter().any(named), "{path} is not marked (reload)");
    }
}

/// The configurations that files under `config/kubernetes` hold or are.
fn configurations_in(documents: &[Value]) -> Vec<String> {
    let mut found = Vec::new();
    for document in documents {
        match document["kind"].as_str() {
            Some("Configuration") => found.push(document.to_string()),
            Some("ConfigMap") => {
                let texts = document["data"].as_object().unwrap().values();
                let texts = texts.map(|text| text.as_str().unwrap());
                found.extend(
                    texts
                        .filter(|t| t.contains("kind: Configuration"))
                        .map(str::to_owned),
                );
            }
            _ => {}
        }
    }
    found
}

fn yaml_files(directory: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("grafana/generate") {
            continue; // a program
        }
        if path.is_dir() {
            yaml_files(&path, out);
        } else {
            out.push(path);
        }
    }
}

#[test]
fn every_file_under_config_parses_and_every_configuration_in_them_is_sound() {
    let scratch = Scratch::new("kubernetes");
    for made in ["ca", "apiserver", "front-proxy-client", "tls"] {
        let identity = rcgen::generate_simple_self_signed(["kubernetes".to_owned()]).unwrap();
        scratch
            .file(&format!("{made}.crt"), identity.cert.pem())
            .file(&format!("{made}.key"), identity.signing_key.serialize_pem());
    }
    scratch.file("token", "abc");
    fs::create_dir_all(scratch.0.join("policies")).unwrap();
    let here = scratch.0.display().to_string();
    let mut files = Vec::new();
    yaml_files(&repository().join("config"), &mut files);
    let mut configurations = 0;
    for path in files {
        let documents = yaml::documents(&fs::read(&path).unwrap());
        let documents = documents.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(!documents.is_empty(), "{}", path.display());
        for text in configurations_in(&documents) {
            let text = text
                .replace("/etc/kubernetes/pki", &here)
                .replace("/etc/fairgate/tls", &here)
                .replace("/etc/fairgate/policies", &here)
                .replace("/var/run/secrets/kubernetes.io/serviceaccount", &here);
            let file = path.display().to_string();
            let reading = Config::parse(&file, &scratch.0, text.as_bytes());
            assert_eq!(reading.findings, [], "{file}");
            configurations += 1;
        }
    }
    assert_eq!(configurations, 4);
}
