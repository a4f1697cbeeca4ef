//! The directory and configuration of a gateway that is measured.

use std::path::PathBuf;

use fairgate::{
    app::{self, Running},
    config::Config,
    observe::GatewayMetrics,
};

/// The directory of a gateway, removed with this value, and its settings.
pub(crate) struct Home {
    directory: PathBuf,
    store: String,
}

impl Home {
    /// Objects in a file.
    pub(crate) fn local() -> Self {
        Self::with("store: {local: {path: store.redb}}\n".to_owned())
    }

    /// Objects in an etcd.
    #[cfg(feature = "etcd")]
    pub(crate) fn etcd(endpoint: &str) -> Self {
        Self::with(format!(
            "store: {{type: etcd, etcd: {{endpoints: ['{endpoint}']}}}}\n"
        ))
    }

    fn with(store: String) -> Self {
        let directory = std::env::temp_dir().join(format!("fairgate-bench-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).expect("the temporary directory can be written");
        std::fs::write(directory.join("tokens"), "root,root,root,system:masters\n")
            .expect("the temporary directory can be written");
        Self { directory, store }
    }

    /// Starts the gateway.
    pub(crate) fn start(&self) -> Running {
        let text = format!(
            "apiVersion: fairgate.dev/v1alpha1\n\
             kind: Configuration\n\
             mode: standalone\n\
             listen: {{address: '127.0.0.1:0'}}\n\
             admin: {{address: '127.0.0.1:0'}}\n\
             authentication: {{tokenFile: tokens, tokenReview: {{enabled: false}}}}\n\
             drain: {{delay: 0s, grace: 0s}}\n\
             {}",
            self.store
        );
        let reading = Config::parse("bench.yaml", &self.directory, text.as_bytes());
        let (config, _) = reading.usable().expect("the configuration is right");
        app::start(config, None, GatewayMetrics::new()).expect("a gateway starts")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
