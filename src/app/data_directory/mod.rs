//! The data directory of a gateway that was started without a configuration: certificates, a store and
//! kubeconfigs.
//!
//! The CA is created once and is valid for ten years; the certificates it signs are created at each start
//! and are valid for one year. Only the owner can read the files: the administrator's kubeconfig gives
//! full access. One gateway at a time uses a directory.
//!
//! Not here: gateways with a configuration, which names its own files.

mod authority;

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write as _},
    net::SocketAddr,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use authority::{CertificateAuthority, client, serving};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use fairgate_base::clock::Clock;
use fairgate_core::digest::User;

/// The group of the ordinary user; it may read the policy objects.
const READERS: &str = "fairgate:readers";
/// The ordinary user.
const USER: &str = "alice";
/// The administrator.
const ADMIN: &str = "fairgate-admin";

/// The configuration that the directory gets.
const CONFIGURATION: &str = "\
# Created by `fairgate serve`, which uses it when started without --config. It is not overwritten, so
# you can change it. `fairgate check --config` validates it; config/fairgate.yaml in the repository
# explains every key.
apiVersion: fairgate.dev/v1alpha1
kind: Configuration
mode: standalone
listen:
  address: 127.0.0.1:8443
  tls:
    certFile: server.crt
    keyFile: server.key
authentication:
  clientCertificate:
    caFile: ca.crt
  tokenReview:
    enabled: false
hostedApi:
  readerGroups: [\"fairgate:readers\"]
store:
  type: local
  local:
    path: fairgate.redb
";

/// Why a directory cannot be used as data directory.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DataDirectoryError {
    /// A file cannot be read or written.
    #[error("{path}: {source}; check the directory and its permissions", path = path.display())]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another gateway uses it.
    #[error("{path}: another fairgate process uses this directory; stop it, or start this one in another directory", path = path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// Other users can write to it, and could replace its keys.
    #[error("{path}: the directory is writable by other users (mode {mode:o}); run chmod 700 on it", path = path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// The permission bits of the directory.
        mode: u32,
    },
    /// The CA cannot be used.
    #[error("{path}: the CA {why}; remove ca.crt and ca.key to have them created again", path = path.display())]
    CertificateAuthority {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A certificate cannot be created.
    #[error("{path}: {source}; remove the file to have it created again", path = path.display())]
    Certificate {
        /// The path of the file.
        path: PathBuf,
        /// The error of rcgen.
        source: rcgen::Error,
    },
}

/// A directory with everything that a gateway needs; locked until this value is dropped.
#[derive(Debug)]
pub(crate) struct DataDirectory {
    directory: PathBuf,
    authority: CertificateAuthority,
    /// Locked until this value is dropped.
    _lock: File,
}

impl DataDirectory {
    /// Prepares `directory`: creates what is missing, and a new serving certificate.
    ///
    /// # Errors
    ///
    /// [`DataDirectoryError`].
    pub(crate) fn prepare(directory: &Path, clock: &Clock) -> Result<Self, DataDirectoryError> {
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory);
        made.map_err(|source| io_error(directory, source))?;
        let lock = lock(directory)?;
        let now = Duration::from_secs(clock.unix_seconds());
        let authority = CertificateAuthority::find(directory, now)?;
        let this = Self {
            directory: directory.to_owned(),
            authority,
            _lock: lock,
        };
        let config = this.config();
        if !config.exists() {
            write(&config, CONFIGURATION)?;
        }
        let (certificate, key) = this.authority.sign(directory, &serving())?;
        write(&this.path("server.crt"), &certificate)?;
        write(&this.path("server.key"), &key)?;
        Ok(this)
    }

    /// The path of its configuration file.
    pub(crate) fn config(&self) -> PathBuf {
        self.path("fairgate.yaml")
    }

    /// Writes the kubeconfigs of the administrator and of the ordinary user for a gateway that listens
    /// at `address`. Returns the administrator's.
    ///
    /// # Errors
    ///
    /// [`DataDirectoryError`].
    pub(crate) fn write_kubeconfigs(
        &self,
        address: SocketAddr,
    ) -> Result<PathBuf, DataDirectoryError> {
        let users = [
            ("admin.kubeconfig", ADMIN, User::MASTERS),
            ("user.kubeconfig", USER, READERS),
        ];
        for (file, name, group) in users {
            let (certificate, key) = self.authority.sign(&self.directory, &client(name, group))?;
            let text = self.kubeconfig(address, name, &certificate, &key);
            write(&self.path(file), &text)?;
        }
        Ok(self.path("admin.kubeconfig"))
    }

    fn path(&self, file: &str) -> PathBuf {
        self.directory.join(file)
    }

    fn kubeconfig(&self, address: SocketAddr, name: &str, certificate: &str, key: &str) -> String {
        let [authority, certificate, key] =
            [self.authority.pem.as_str(), certificate, key].map(|pem| STANDARD.encode(pem));
        // The serving certificate is valid for this address.
        let port = address.port();
        format!(
            "apiVersion: v1\n\
             kind: Config\n\
             clusters:\n\
             - name: fairgate\n\
             \x20 cluster:\n\
             \x20   server: https://127.0.0.1:{port}\n\
             \x20   certificate-authority-data: {authority}\n\
             users:\n\
             - name: {name}\n\
             \x20 user:\n\
             \x20   client-certificate-data: {certificate}\n\
             \x20   client-key-data: {key}\n\
             contexts:\n\
             - name: fairgate\n\
             \x20 context:\n\
             \x20   cluster: fairgate\n\
             \x20   user: {name}\n\
             current-context: fairgate\n"
        )
    }
}

/// Locks a directory for this process.
fn lock(directory: &Path) -> Result<File, DataDirectoryError> {
    let metadata = fs::metadata(directory).map_err(|source| io_error(directory, source))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o022 != 0 {
        return Err(DataDirectoryError::Open {
            path: directory.to_owned(),
            mode,
        });
    }
    let path = directory.join("lock");
    let opened = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path);
    let file = opened.map_err(|source| io_error(&path, source))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(DataDirectoryError::InUse {
            path: directory.to_owned(),
        }),
        Err(TryLockError::Error(source)) => Err(io_error(&path, source)),
    }
}

fn io_error(path: &Path, source: io::Error) -> DataDirectoryError {
    DataDirectoryError::Io {
        path: path.to_owned(),
        source,
    }
}

/// Writes a file that only its owner can read. It is written under another name and renamed, so that it
/// is never incomplete, and never readable by others even for a moment.
fn write(path: &Path, text: &str) -> Result<(), DataDirectoryError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let written = (|| {
        // Left over from an interrupted start.
        let _ = fs::remove_file(&temporary);
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    written.map_err(|source| io_error(path, source))
}

#[cfg(test)]
mod tests {
    use rcgen::KeyPair;

    use super::*;
    use fairgate_config::Config;
    use fairgate_core::time::Time;

    #[test]
    fn a_directory_is_created_once_with_a_valid_configuration() {
        let directory = std::env::temp_dir().join(format!("fairgate-home-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        let clock = Clock::system();
        let home = DataDirectory::prepare(&directory, &clock).unwrap();
        let (config, warnings) = Config::read(Some(&home.config())).usable().unwrap();
        assert_eq!(warnings, []);
        let admin = home.write_kubeconfigs(config.listen.address).unwrap();
        let first = fs::read_to_string(directory.join("ca.crt")).unwrap();
        fs::write(home.config(), "mine").unwrap();
        let second = DataDirectory::prepare(&directory, &clock);
        assert!(
            matches!(second, Err(DataDirectoryError::InUse { .. })),
            "{second:?}"
        );
        drop(home);

        let again = DataDirectory::prepare(&directory, &clock).unwrap();

        assert_eq!(fs::read_to_string(directory.join("ca.crt")).unwrap(), first);
        assert_eq!(fs::read_to_string(again.config()).unwrap(), "mine");
        for file in ["ca.key", "server.key", "user.kubeconfig"] {
            let mode = fs::metadata(directory.join(file))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
        assert!(
            fs::read_to_string(admin)
                .unwrap()
                .contains("https://127.0.0.1:8443")
        );
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_directory_that_cannot_be_trusted_is_not_used() {
        let directory =
            std::env::temp_dir().join(format!("fairgate-homeless-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        let years =
            |years: u64| Clock::manual(Time::ZERO.plus(Duration::from_secs(years * 365 * 86_400)));
        drop(DataDirectory::prepare(&directory, &years(50)).unwrap());
        let problem = |clock: &Clock| {
            DataDirectory::prepare(&directory, clock)
                .unwrap_err()
                .to_string()
        };
        assert!(problem(&years(49)).contains("is not valid yet"));
        assert!(problem(&years(61)).contains("has expired"));

        let key = KeyPair::generate().unwrap().serialize_pem();
        fs::write(directory.join("ca.key"), key).unwrap();
        assert!(problem(&years(50)).contains("do not match"));
        fs::write(directory.join("ca.key"), "half of").unwrap();
        assert!(problem(&years(50)).contains("cannot be read"));

        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(problem(&years(50)).contains("writable by other users (mode 777)"));
        fs::remove_dir_all(&directory).unwrap();
    }
}
