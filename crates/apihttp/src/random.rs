//! Random UIDs, and the suffixes of generated names.

use ring::rand::{SecureRandom as _, SystemRandom};
use uuid::Builder;

use crate::status_error::StatusError;

/// Letters and digits that do not form words.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// The length of the suffix of a generated name.
const SUFFIX: usize = 5;
/// The maximum length of the prefix of a generated name, in bytes.
const MAX_PREFIX: usize = 63 - SUFFIX;

fn bytes<const N: usize>() -> Result<[u8; N], StatusError> {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| StatusError::internal("the system provides no random numbers"))?;
    Ok(bytes)
}

/// A random UUID (version 4).
///
/// # Errors
///
/// 500, when the system provides no random numbers.
pub fn uid() -> Result<String, StatusError> {
    let random = Builder::from_random_bytes(bytes()?);
    Ok(random.into_uuid().to_string())
}

/// A name that begins with `prefix`, as a server generates it: at most 58 bytes of it, and five letters and digits.
///
/// # Errors
///
/// 500, when the system provides no random numbers.
pub fn generated_name(prefix: &str) -> Result<String, StatusError> {
    let mut end = prefix.len().min(MAX_PREFIX);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    let mut name = prefix[..end].to_owned();
    // Two bytes for each letter leave no letter noticeably likelier than another.
    let random = bytes::<{ SUFFIX * 2 }>()?;
    for pair in random.chunks_exact(2) {
        let number = usize::from(u16::from_be_bytes([pair[0], pair[1]]));
        name.push(char::from(ALPHABET[number % ALPHABET.len()]));
    }
    Ok(name)
}

/// A random number from 0 to 1; 0 where the system provides none.
pub fn fraction() -> f64 {
    bytes::<2>().map_or(0.0, |two| {
        f64::from(u16::from_be_bytes(two)) / f64::from(u16::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_is_a_uuid_of_version_4() {
        let uid = uid().unwrap();
        assert_eq!(uid.len(), 36);
        assert_eq!(&uid[14..15], "4");
        assert_ne!(uid, super::uid().unwrap());
    }

    #[test]
    fn a_generated_name_fits_a_label() {
        let name = generated_name(&"a".repeat(100)).unwrap();
        assert_eq!(name.len(), 63);
        assert!(generated_name("e2e-").unwrap().starts_with("e2e-"));
    }
}
