//! The tag of an image, as far as the default of the pull policy depends on it.
//!
//! Source: `k8s.io/kubernetes/pkg/util/parsers` and `github.com/distribution/reference`.

/// The most bytes of a repository's path.
const LONGEST_PATH: usize = 255;

/// The domain of images without one, another name of it, and where its own images are.
const HUB: &str = "docker.io";
const OLD_HUB: &str = "index.docker.io";
const LIBRARY: &str = "library/";

/// How an image is pulled by default: always if its tag is `latest`, or would be because there is neither a tag nor a
/// digest. A malformed name has no tag.
pub(super) fn default_pull_policy(image: &str) -> &'static str {
    if has_latest_tag(image) {
        "Always"
    } else {
        "IfNotPresent"
    }
}

fn has_latest_tag(image: &str) -> bool {
    let is_identifier =
        image.len() == 64 && (image.bytes()).all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_identifier {
        return false;
    }
    let (domain, remainder) = split_domain(image);
    // A path may be long, so it is not put together with what it is normalized to.
    let library = domain == HUB && !remainder.contains('/');
    let path_end = remainder.find([':', '@']).unwrap_or(remainder.len());
    let (path, suffix) = remainder.split_at(path_end);
    has_latest_suffix(suffix) && is_repository(domain, path, library)
}

/// The domain of an image, or that of Docker Hub, and the rest.
fn split_domain(image: &str) -> (&str, &str) {
    match image.split_once('/') {
        Some((OLD_HUB, rest)) => (HUB, rest),
        Some((first, rest))
            if first == "localhost"
                || first.contains(['.', ':'])
                || first.contains(char::is_uppercase) =>
        {
            (first, rest)
        }
        _ => (HUB, image),
    }
}

/// Whether `:tag@digest`, both optional, mean the latest image.
fn has_latest_suffix(suffix: &str) -> bool {
    match suffix.strip_prefix(":latest") {
        Some("") => true,
        Some(rest) => rest.strip_prefix('@').is_some_and(is_digest),
        None => suffix.is_empty(),
    }
}

/// Whether this is a digest by one of the known algorithms.
fn is_digest(text: &str) -> bool {
    let Some((algorithm, digits)) = text.split_once(':') else {
        return false;
    };
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    digits.len() == length && (digits.bytes()).all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a domain and a path are the name of a repository, whose path is not too long.
fn is_repository(domain: &str, path: &str, library: bool) -> bool {
    if !path.split('/').all(is_path_component) {
        return false;
    }
    if is_domain(domain) {
        let library = if library { LIBRARY.len() } else { 0 };
        library + path.len() <= LONGEST_PATH
    } else {
        // What cannot be a domain may be the first part of the path.
        is_path_component(domain) && domain.len() + 1 + path.len() <= LONGEST_PATH
    }
}

/// Lower-case letters and digits with separators between them: `.`, `_`, `__`, or any number of `-`.
fn is_path_component(text: &str) -> bool {
    let mut rest = text.as_bytes();
    loop {
        let letters = (rest.iter())
            .take_while(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9'))
            .count();
        if letters == 0 {
            return false;
        }
        rest = &rest[letters..];
        let separator = match rest {
            [] => return true,
            [b'_', b'_', ..] => 2,
            [b'.' | b'_', ..] => 1,
            [b'-', ..] => rest.iter().take_while(|&&byte| byte == b'-').count(),
            _ => return false,
        };
        rest = &rest[separator..];
    }
}

/// A name or an IPv6 address in brackets, and a port, which is optional.
fn is_domain(text: &str) -> bool {
    let host = match text.rsplit_once(':') {
        Some((host, port)) if !text.ends_with(']') => {
            if port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
                return false;
            }
            host
        }
        _ => text,
    };
    let address = (host.strip_prefix('[')).and_then(|host| host.strip_suffix(']'));
    match address {
        Some(address) => {
            !address.is_empty()
                && (address.bytes()).all(|byte| byte.is_ascii_hexdigit() || byte == b':')
        }
        None => host.split('.').all(is_domain_component),
    }
}

fn is_domain_component(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && !text.ends_with('-')
        && (text.bytes()).all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}
