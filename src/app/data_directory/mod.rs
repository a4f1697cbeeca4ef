//! The home of a gateway that was given no configuration: certificates, a store, and kubeconfigs, in a
//! directory of its own.
//!
//! The authority is made once and lasts ten years; everything it signs is made anew at each start and
//! lasts one. All of it is for its owner's eyes alone: whoever reads the administrator's kubeconfig is one.
//! One gateway uses it at a time.
//!
//! Not here: what a gateway with a configuration needs. That names its own files.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write as _},
    net::SocketAddr,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData as _,
};

use fairgate_base::clock::Clock;
use fairgate_core::digest::User;

/// How long the authority lasts.
const AUTHORITY_LASTS: Duration = Duration::from_secs(10 * 365 * 86_400);
/// How long what it signs lasts.
const LASTS: Duration = Duration::from_secs(365 * 86_400);
/// How far clocks may be apart.
const SKEW: Duration = Duration::from_secs(3600);

/// The group of the ordinary user, who may read the policy objects.
const READERS: &str = "fairgate:readers";
/// The ordinary user.
const USER: &str = "alice";
/// The administrator.
const ADMIN: &str = "fairgate-admin";

/// The configuration that the directory gets.
const CONFIGURATION: &str = "\
# Made by `fairgate serve`, which uses it when started without --config. Change it as you like: it is
# not written again. `fairgate check --config` tells what is wrong with it; config/fairgate.yaml in the
# repository explains every key.
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

/// Why the directory cannot be made a home of.
#[derive(Debug, thiserror::Error)]
pub enum DataDirectoryError {
    /// The disk, or what is on it.
    #[error("{path}: {source}; check the directory and its permissions", path = path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another gateway is at work in it.
    #[error("{path}: another fairgate uses this directory; end it, or start this one elsewhere", path = path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// Others could put their own keys into it.
    #[error("{path}: others may write there (mode {mode:o}); run chmod 700 on it", path = path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// What was made for ten years cannot be used.
    #[error("{path}: the authority {why}; remove ca.crt and ca.key, and they are made anew", path = path.display())]
    Authority {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Certificates cannot be made.
    #[error("{path}: {source}; remove the file, and it is made anew", path = path.display())]
    Certificate {
        /// Which file.
        path: PathBuf,
        /// What the library says.
        source: rcgen::Error,
    },
}

/// A directory with all that a gateway needs.
#[derive(Debug)]
pub struct DataDirectory {
    directory: PathBuf,
    authority: Authority,
    /// Held as long as this is.
    _lock: File,
}

#[derive(Debug)]
struct Authority {
    pem: String,
    key: String,
    now: Duration,
}

impl DataDirectory {
    /// Makes `directory` a home, or finds what it needs to be one. The serving certificate is new.
    ///
    /// # Errors
    ///
    /// [`DataDirectoryError`].
    pub fn prepare(directory: &Path, clock: &Clock) -> Result<Self, DataDirectoryError> {
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory);
        made.map_err(|source| io_error(directory, source))?;
        let lock = lock(directory)?;
        let now = Duration::from_secs(clock.unix_seconds());
        let authority = Authority::find(directory, now)?;
        let home = Self {
            directory: directory.to_owned(),
            authority,
            _lock: lock,
        };
        let config = home.config();
        if !config.exists() {
            write(&config, CONFIGURATION)?;
        }
        let (certificate, key) = home.sign(&serving())?;
        write(&home.path("server.crt"), &certificate)?;
        write(&home.path("server.key"), &key)?;
        Ok(home)
    }

    /// Its configuration.
    pub fn config(&self) -> PathBuf {
        self.path("fairgate.yaml")
    }

    /// Writes the kubeconfigs of the administrator and of the ordinary user for a gateway that listens
    /// at `address`. Returns the administrator's.
    ///
    /// # Errors
    ///
    /// [`DataDirectoryError`].
    pub fn write_kubeconfigs(&self, address: SocketAddr) -> Result<PathBuf, DataDirectoryError> {
        let people = [
            ("admin.kubeconfig", ADMIN, User::MASTERS),
            ("user.kubeconfig", USER, READERS),
        ];
        for (file, name, group) in people {
            let (certificate, key) = self.sign(&client(name, group))?;
            let text = self.kubeconfig(address, name, &certificate, &key);
            write(&self.path(file), &text)?;
        }
        Ok(self.path("admin.kubeconfig"))
    }

    fn path(&self, file: &str) -> PathBuf {
        self.directory.join(file)
    }

    fn sign(&self, params: &CertificateParams) -> Result<(String, String), DataDirectoryError> {
        let failed = |source| DataDirectoryError::Certificate {
            path: self.path("ca.key"),
            source,
        };
        let mut params = params.clone();
        set_validity(&mut params, self.authority.now, LASTS);
        let issuer_key = KeyPair::from_pem(&self.authority.key).map_err(failed)?;
        let issuer = Issuer::new(authority_params(self.authority.now), issuer_key);
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    fn kubeconfig(&self, address: SocketAddr, name: &str, certificate: &str, key: &str) -> String {
        let [authority, certificate, key] =
            [self.authority.pem.as_str(), certificate, key].map(|pem| STANDARD.encode(pem));
        // Reached by what the serving certificate bears.
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

impl Authority {
    /// The authority in `directory`, made if there is none.
    fn find(directory: &Path, now: Duration) -> Result<Self, DataDirectoryError> {
        let (crt, key) = (directory.join("ca.crt"), directory.join("ca.key"));
        if crt.exists() && key.exists() {
            let read =
                |path: &Path| fs::read_to_string(path).map_err(|source| io_error(path, source));
            let (pem, key) = (read(&crt)?, read(&key)?);
            return match fault_of(&pem, &key, now) {
                None => Ok(Self { pem, key, now }),
                Some(why) => Err(DataDirectoryError::Authority {
                    path: directory.to_owned(),
                    why,
                }),
            };
        }
        let failed = |source| DataDirectoryError::Certificate {
            path: crt.clone(),
            source,
        };
        let pair = KeyPair::generate().map_err(failed)?;
        let certificate = authority_params(now).self_signed(&pair).map_err(failed)?;
        let authority = Self {
            pem: certificate.pem(),
            key: pair.serialize_pem(),
            now,
        };
        write(&key, &authority.key)?;
        write(&crt, &authority.pem)?;
        Ok(authority)
    }
}

/// What is wrong with an authority, if anything is.
fn fault_of(certificate: &str, key: &str, now: Duration) -> Option<&'static str> {
    let unreadable = "cannot be read";
    let Ok(key) = KeyPair::from_pem(key) else {
        return Some(unreadable);
    };
    let Ok((_, pem)) = x509_parser::pem::parse_x509_pem(certificate.as_bytes()) else {
        return Some(unreadable);
    };
    let Ok(certificate) = pem.parse_x509() else {
        return Some(unreadable);
    };
    if certificate.public_key().raw != key.subject_public_key_info() {
        return Some("has a certificate and a key that do not belong together");
    }
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = certificate.validity();
    if now < validity.not_before.timestamp() {
        return Some("is of the future; see whether the clock is right");
    }
    (now > validity.not_after.timestamp()).then_some("has expired")
}

/// Takes a directory for this process alone.
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

fn authority_params(now: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished_name("fairgate-ca", None);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    set_validity(&mut params, now, AUTHORITY_LASTS);
    params
}

fn serving() -> CertificateParams {
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let mut params = CertificateParams::new(names).unwrap_or_default();
    params.distinguished_name = distinguished_name("fairgate", None);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

fn client(name: &str, group: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished_name(name, Some(group));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn distinguished_name(name: &str, group: Option<&str>) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    if let Some(group) = group {
        distinguished.push(DnType::OrganizationName, group);
    }
    distinguished
}

fn set_validity(params: &mut CertificateParams, now: Duration, lasts: Duration) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(SKEW);
    params.not_after = epoch + (now + lasts);
}

fn io_error(path: &Path, source: io::Error) -> DataDirectoryError {
    DataDirectoryError::Io {
        path: path.to_owned(),
        source,
    }
}

/// Writes a file that only its owner can read: beside its place first, so that nobody ever finds half
/// of it, or all of it readable for a moment.
fn write(path: &Path, text: &str) -> Result<(), DataDirectoryError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let written = (|| {
        // Left behind by a start that was cut off.
        let _ = fs::remove_file(&beside);
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)?;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    })();
    written.map_err(|source| io_error(path, source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use fairgate_core::time::Time;

    #[test]
    fn a_home_is_made_once_and_its_configuration_can_be_used() {
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
    fn a_home_that_cannot_be_trusted_is_not_used() {
        let directory =
            std::env::temp_dir().join(format!("fairgate-homeless-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        let years =
            |years: u64| Clock::manual(Time::ZERO.plus(Duration::from_secs(years * 365 * 86_400)));
        drop(DataDirectory::prepare(&directory, &years(50)).unwrap());
        let told = |clock: &Clock| {
            DataDirectory::prepare(&directory, clock)
                .unwrap_err()
                .to_string()
        };
        assert!(told(&years(49)).contains("is of the future"));
        assert!(told(&years(61)).contains("has expired"));

        let key = KeyPair::generate().unwrap().serialize_pem();
        fs::write(directory.join("ca.key"), key).unwrap();
        assert!(told(&years(50)).contains("do not belong together"));
        fs::write(directory.join("ca.key"), "half of").unwrap();
        assert!(told(&years(50)).contains("cannot be read"));

        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(told(&years(50)).contains("others may write there (mode 777)"));
        fs::remove_dir_all(&directory).unwrap();
    }
}
