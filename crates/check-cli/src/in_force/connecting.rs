//! Why a command cannot connect, in the words of what it was given.
//!
//! The messages about connections name keys of a gateway's configuration. Whoever asks a server by an argument or a kubeconfig has
//! no such keys, and would look for the mistake in the wrong file.

/// What is said in a message of a gateway, and what is said here.
pub(super) type Wording = [(&'static str, &'static str)];

/// With the arguments of `--server`.
pub(super) const BY_ARGUMENTS: [(&str, &str); 7] = [
    (
        "set upstream.tlsServerName to a name that it has",
        "write a name that it has in --server",
    ),
    ("upstream.caFile", "--certificate-authority"),
    ("upstream.clientCertificate", "the client certificate"),
    ("upstream.url", "--server"),
    ("timeouts.upstreamConnect", "the time limit"),
    ("the gateway's certificate", "the client's certificate"),
    ("; check that the API server runs and listens there", ""),
];

/// With a kubeconfig.
pub(super) const BY_KUBECONFIG: [(&str, &str); 6] = [
    (
        "upstream.tlsServerName",
        "tls-server-name in the kubeconfig",
    ),
    ("upstream.caFile", "certificate-authority in the kubeconfig"),
    (
        "upstream.clientCertificate",
        "client-certificate in the kubeconfig",
    ),
    ("upstream.url", "server in the kubeconfig"),
    ("timeouts.upstreamConnect", "the time limit"),
    ("the gateway's certificate", "the client's certificate"),
];

/// The message in these words.
pub(super) fn in_words(message: &str, wording: &Wording) -> String {
    let replaced = |text: String, (theirs, ours): &(&str, &str)| text.replace(theirs, ours);
    wording.iter().fold(message.to_owned(), replaced)
}

/// What happened, and what to do: what the message itself says about it, which knows more than `otherwise`.
pub(super) fn with_remedy(message: &str, otherwise: &str) -> (String, String) {
    let (happened, remedy) = message.rsplit_once("; ").unwrap_or((message, otherwise));
    (happened.to_owned(), remedy.to_owned())
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc};

    use fairgate_upstream::dial_error::DialError;

    use super::*;

    #[test]
    fn what_a_message_says_to_do_is_not_followed_by_something_else() {
        let error = DialError::ExpectsTls { url: "h:1".into() };
        let message = in_words(&error.to_string(), &BY_ARGUMENTS);
        let (happened, remedy) = with_remedy(&message, "see whether it listens");
        assert_eq!(happened, "h:1: the server speaks TLS");
        assert_eq!(
            remedy,
            "write https:// in --server, with --certificate-authority"
        );
        let (_, remedy) = with_remedy("h:1: cannot connect: no", "see whether it listens");
        assert_eq!(remedy, "see whether it listens");
    }

    #[test]
    fn what_keeps_a_command_from_connecting_names_what_it_was_given() {
        let url: Arc<str> = "h:1".into();
        let source = Arc::new(io::Error::other("no"));
        let problem =
            "its certificate is for a, not for b; set upstream.tlsServerName to a name that it has";
        for (error, by_arguments, by_kubeconfig) in [
            (
                DialError::ExpectsTls {
                    url: Arc::clone(&url),
                },
                "h:1: the server speaks TLS; write https:// in --server, with --certificate-authority",
                "h:1: the server speaks TLS; write https:// in server in the kubeconfig, with certificate-authority in the kubeconfig",
            ),
            (
                DialError::Unresolved {
                    url: Arc::clone(&url),
                    source: Arc::clone(&source),
                },
                "h:1: cannot resolve the name: no; check --server and DNS",
                "h:1: cannot resolve the name: no; check server in the kubeconfig and DNS",
            ),
            (
                DialError::NotConnected {
                    url: Arc::clone(&url),
                    source,
                },
                "h:1: cannot connect: no",
                "h:1: cannot connect: no; check that the API server runs and listens there",
            ),
            (
                DialError::Handshake {
                    url,
                    problem: problem.into(),
                },
                "h:1: its certificate is for a, not for b; write a name that it has in --server",
                "h:1: its certificate is for a, not for b; set tls-server-name in the kubeconfig to a name that it has",
            ),
        ] {
            let error = error.to_string();
            assert_eq!(in_words(&error, &BY_ARGUMENTS), by_arguments);
            assert_eq!(in_words(&error, &BY_KUBECONFIG), by_kubeconfig);
        }
    }
}
