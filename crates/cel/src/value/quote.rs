//! Quoted texts that may be long.

use fairgate_gotext::write_escaped;

use super::{CelError, CelWork, work_of_bytes};

/// How many bytes are quoted between two looks at the interrupt.
const PIECE: usize = 64 << 10;

/// A text as Go's `%q` prints it: in pieces, each of which takes steps.
///
/// # Errors
///
/// When no steps are left, or the host interrupts the evaluation.
pub(crate) fn quote_in_steps(text: &str, work: &mut CelWork<'_>) -> Result<String, CelError> {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    let mut rest = text;
    while !rest.is_empty() {
        let mut end = rest.len().min(PIECE);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let before = quoted.len();
        write_escaped(&mut quoted, &rest[..end]).expect("writing to a string does not fail");
        work.burn(work_of_bytes(quoted.len() - before))?;
        rest = &rest[end..];
    }
    quoted.push('"');
    Ok(quoted)
}
