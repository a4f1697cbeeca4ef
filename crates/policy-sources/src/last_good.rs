//! The last good set of policy documents, kept in a file, for a start while the source has errors.
//!
//! A file has the documents as they were, so that they are validated again when they are used. It is written under another
//! name and renamed, and its digest is checked, so that a torn write is never used. Whoever can write to the
//! file decides about the policies, so it is used only if nobody but its owner, the user of the gateway, can.
//!
//! Not here: when a set is kept or used.

#[cfg(test)]
mod tests;

use std::{
    fmt::Write as _,
    fs::{self, DirBuilder, File, Metadata, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{
        DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{fs::OFlags, process::geteuid};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::document::PolicyDocument;

/// The version of the format. A file of another version is not used.
const API_VERSION: &str = "fairgate.dev/v1alpha1";

/// The kind of a file.
const KIND: &str = "LastGoodPolicies";

/// The length of the largest file that is read, in bytes: more than what a source can yield.
const MAX_BYTES: u64 = 256 << 20;

/// A file that was being written for longer than this was left behind by a process that ended.
const ABANDONED: Duration = Duration::from_secs(3600);

/// The ending of the names of files that are being written.
const UNFINISHED: &str = ".tmp";

/// Which policies a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyArea {
    /// `FlowSchema`s and `PriorityLevelConfiguration`s.
    FlowControl,
    /// `ValidatingAdmissionPolicy` objects and their bindings.
    Admission,
}

/// A set that was in force.
#[derive(Clone, Debug, PartialEq)]
pub struct LastGoodSet {
    /// The documents, in the order of their source.
    pub documents: Vec<PolicyDocument>,
    /// `sha256:` and the digest of the documents.
    pub digest: String,
    /// When it last came into force, in seconds since 1970.
    pub saved_at: u64,
}

/// The file with the last good set of one source.
#[derive(Clone, Debug)]
pub struct LastGoodFile {
    directory: PathBuf,
    path: PathBuf,
    source: String,
}

/// Why a set cannot be kept or used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum LastGoodError {
    /// A file or directory cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
    /// Somebody else may have written it.
    #[error("{path}: {why}; only the user of the gateway may be able to write to it", path = path.display())]
    Untrusted { path: PathBuf, why: &'static str },
    /// The file is damaged, or of another version.
    #[error("{path}: {why}", path = path.display())]
    Unusable { path: PathBuf, why: String },
}

/// The content of a file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LastGoodContent<D> {
    api_version: String,
    kind: String,
    source: String,
    saved_at: u64,
    digest: String,
    documents: D,
}

/// What every version has.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FormatVersion {
    api_version: String,
    kind: String,
}

impl PolicyArea {
    fn prefix(self) -> &'static str {
        match self {
            Self::FlowControl => "flowcontrol",
            Self::Admission => "admission",
        }
    }
}

impl LastGoodFile {
    /// The file in `directory` for the policies of `source`, a text such as `files /etc/policies`. Gateways with different
    /// sources can share a directory: each source has a file of its own.
    pub fn new(directory: &Path, area: PolicyArea, source: &str) -> Self {
        let name = &hexadecimal(&Sha256::digest(source))[..16];
        Self {
            directory: directory.to_owned(),
            path: directory.join(format!("{}-{name}.json", area.prefix())),
            source: source.to_owned(),
        }
    }

    /// Reads the set; `None` if none was kept. For a caller that may block.
    ///
    /// # Errors
    ///
    /// [`LastGoodError`], if it must not be used.
    pub fn read(&self) -> Result<Option<LastGoodSet>, LastGoodError> {
        match fs::metadata(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error(&self.directory, error)),
            Ok(directory) => self.check_directory(&directory)?,
        }
        let Some(text) = read_own(&self.path)? else {
            return Ok(None);
        };
        let unusable = |why: String| LastGoodError::Unusable {
            path: self.path.clone(),
            why,
        };
        let incomplete = |error| unusable(format!("it is not complete: {error}"));
        let format: FormatVersion = serde_json::from_slice(&text).map_err(incomplete)?;
        if (&*format.api_version, &*format.kind) != (API_VERSION, KIND) {
            let found = format!("{} {}", format.api_version, format.kind);
            return Err(unusable(format!(
                "it is {found}, and this version reads {API_VERSION} {KIND}"
            )));
        }
        let content: LastGoodContent<Vec<PolicyDocument>> =
            serde_json::from_slice(&text).map_err(incomplete)?;
        if content.source != self.source {
            return Err(unusable(format!("it is of {}", content.source)));
        }
        if documents_digest(&content.documents) != content.digest {
            let why = "its digest is not that of its documents".to_owned();
            return Err(unusable(why));
        }
        Ok(Some(LastGoodSet {
            documents: content.documents,
            digest: content.digest,
            saved_at: content.saved_at,
        }))
    }

    /// Keeps a set that came into force at `now`, in seconds since 1970, in the place of an earlier one. Creates the
    /// directory if there is none. For a caller that may block.
    ///
    /// # Errors
    ///
    /// [`LastGoodError`]; the earlier set is kept then.
    pub fn write(&self, documents: &[PolicyDocument], now: u64) -> Result<(), LastGoodError> {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.directory);
        made.map_err(|error| io_error(&self.directory, error))?;
        let directory = fs::metadata(&self.directory);
        self.check_directory(&directory.map_err(|error| io_error(&self.directory, error))?)?;
        let content = LastGoodContent {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            source: self.source.clone(),
            saved_at: now,
            digest: documents_digest(documents),
            documents,
        };
        let text = serde_json::to_vec(&content).map_err(|error| LastGoodError::Unusable {
            path: self.path.clone(),
            why: error.to_string(),
        })?;
        let temporary = self.temporary();
        let written = self.replace(&temporary, &text);
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written.map_err(|error| io_error(&self.path, error))
    }

    /// A name of its own for each write: a gateway with the same source may write at the same time.
    fn temporary(&self) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(format!(".{:016x}{UNFINISHED}", random()));
        PathBuf::from(name)
    }

    fn replace(&self, temporary: &Path, text: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(temporary)?;
        // Whatever the umask is.
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        file.write_all(text)?;
        file.sync_all()?;
        let now = file.metadata()?.modified()?;
        fs::rename(temporary, &self.path)?;
        File::open(&self.directory)?.sync_all()?;
        for entry in fs::read_dir(&self.directory)?.flatten() {
            let name = entry.file_name();
            let is_unfinished = name.as_encoded_bytes().ends_with(UNFINISHED.as_bytes());
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            let age = modified.map(|modified| now.duration_since(modified));
            if is_unfinished && matches!(age, Ok(Ok(age)) if age > ABANDONED) {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }

    fn check_directory(&self, directory: &Metadata) -> Result<(), LastGoodError> {
        let why = if directory.is_dir() {
            // What belongs to root could be replaced by root alone, who could do anything else, too.
            untrusted(directory, &[geteuid().as_raw(), 0])
        } else {
            Some("it is not a directory")
        };
        trusted(&self.directory, why)
    }
}

/// The content of a file that nobody but the user of this process can have written; `None` if there is no such file.
fn read_own(path: &Path) -> Result<Option<Vec<u8>>, LastGoodError> {
    // A pipe must not block.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(_) if path.is_symlink() => {
            return trusted(path, Some("it is a symbolic link")).map(|()| None);
        }
        opened => opened.map_err(|error| io_error(path, error))?,
    };
    let metadata = file.metadata().map_err(|error| io_error(path, error))?;
    let why = if metadata.is_file() {
        untrusted(&metadata, &[geteuid().as_raw()])
    } else {
        Some("it is not a file")
    };
    trusted(path, why)?;
    let mut text = Vec::new();
    let read = file.take(MAX_BYTES + 1).read_to_end(&mut text);
    read.map_err(|error| io_error(path, error))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(LastGoodError::Unusable {
            path: path.to_owned(),
            why: format!("it is longer than {} MiB", MAX_BYTES >> 20),
        });
    }
    Ok(Some(text))
}

/// Who but these owners could have changed it, if anybody.
fn untrusted(metadata: &Metadata, owners: &[u32]) -> Option<&'static str> {
    if !owners.contains(&metadata.uid()) {
        Some("it belongs to another user")
    } else if metadata.mode() & 0o022 != 0 {
        Some("others can write to it")
    } else {
        None
    }
}

fn trusted(path: &Path, why: Option<&'static str>) -> Result<(), LastGoodError> {
    match why {
        None => Ok(()),
        Some(why) => Err(LastGoodError::Untrusted {
            path: path.to_owned(),
            why,
        }),
    }
}

fn io_error(path: &Path, source: io::Error) -> LastGoodError {
    LastGoodError::Io {
        path: path.to_owned(),
        source,
    }
}

/// `sha256:` and the digest of documents, as it is kept with them. Costs some microseconds for each document.
pub fn documents_digest(documents: &[PolicyDocument]) -> String {
    let mut hash = Sha256::new();
    // Values of JSON, whose members are in a fixed order, can always be written.
    let _ = serde_json::to_writer(&mut hash, documents);
    format!("sha256:{}", hexadecimal(&hash.finalize()))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A random number, from the keys of the standard library's hash maps.
fn random() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _, RandomState};
    RandomState::new().build_hasher().finish()
}
