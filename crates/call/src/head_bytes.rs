//! What the head of a request takes in memory.

/// What a line of a head takes in memory besides its texts.
const LINE_BYTES: usize = 128;

/// What the target and the lines of a request take in memory while the request waits. Cost: O(lines).
pub fn head_bytes<B>(request: &http::Request<B>) -> usize {
    let uri = request.uri();
    let target = uri.path().len() + uri.query().map_or(0, str::len);
    let lines = request.headers().iter();
    let lines = lines.map(|(name, value)| LINE_BYTES + name.as_str().len() + value.len());
    target + lines.sum::<usize>()
}
