//! A Pod of usual size.

use serde_json::{Value, json};

/// A Pod whose JSON has about 4 KiB.
pub(crate) fn pod() -> String {
    let container = |name: &str| {
        let env: Vec<Value> = (0..6)
            .map(|at| json!({"name": format!("SETTING_{at}"), "value": format!("value of setting {at}")}))
            .collect();
        json!({
            "name": name,
            "image": format!("registry.example.com/team/{name}:1.4.2"),
            "imagePullPolicy": "IfNotPresent",
            "args": ["--listen=:8080", "--config=/etc/app/config.yaml", "--log-level=info"],
            "env": env,
            "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
            "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
            "securityContext": {"privileged": false, "runAsNonRoot": true, "readOnlyRootFilesystem": true},
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10, "timeoutSeconds": 1},
            "volumeMounts": [{"mountPath": "/etc/app", "name": "config", "readOnly": true}],
        })
    };
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-7d4b9c6f5-x2x9k",
            "namespace": "shop",
            "labels": {"app.kubernetes.io/name": "web", "app.kubernetes.io/part-of": "shop", "tier": "front"},
            "annotations": {"owner": "team-shop", "prometheus.io/scrape": "true"},
        },
        "spec": {
            "replicas": 3,
            "serviceAccountName": "web",
            "containers": [container("main"), container("sidecar"), container("proxy"), container("logs")],
            "volumes": [{"name": "config", "configMap": {"name": "web-config", "defaultMode": 420}}],
            "terminationGracePeriodSeconds": 30,
            "restartPolicy": "Always",
        },
    })
    .to_string()
}
