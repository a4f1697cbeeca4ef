//! Searches the events of a watch for the bookmark that ends the initial ones, by its annotation.
//!
//! It is found in JSON and in protobuf, and however the stream is cut into frames.

/// The annotation of the bookmark that ends the initial events.
pub(super) const INITIAL_EVENTS_END: &[u8] = b"k8s.io/initial-events-end";

/// Searches a stream for the annotation.
#[derive(Debug, Default)]
pub(super) struct AnnotationSearch {
    /// The last bytes before the current data, one less than the length of the annotation.
    before: Vec<u8>,
}

impl AnnotationSearch {
    /// Whether the annotation was in the stream so far, including `data`.
    pub(super) fn saw(&mut self, data: &[u8]) -> bool {
        let keep = INITIAL_EVENTS_END.len() - 1;
        let mut joint = std::mem::take(&mut self.before);
        // The text may be cut between two frames.
        joint.extend_from_slice(&data[..data.len().min(keep)]);
        if contains(&joint) || contains(data) {
            return true;
        }
        if data.len() >= keep {
            joint.clear();
            joint.extend_from_slice(&data[data.len() - keep..]);
        } else {
            joint.drain(..joint.len().saturating_sub(keep));
        }
        self.before = joint;
        false
    }
}

fn contains(data: &[u8]) -> bool {
    memchr::memmem::find(data, INITIAL_EVENTS_END).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_annotation_is_found_however_the_stream_is_split() {
        let mut text = b"{\"type\":\"BOOKMARK\",\"x\":\"".to_vec();
        text.extend_from_slice(INITIAL_EVENTS_END);
        text.extend_from_slice(b"\":\"true\"}");
        for size in 1..text.len() {
            let mut tail = AnnotationSearch::default();
            let seen = text.chunks(size).filter(|piece| tail.saw(piece)).count();
            assert!(seen >= 1, "in pieces of {size}");
        }
        let mut tail = AnnotationSearch::default();
        assert!(!text.chunks(3).take(8).any(|piece| tail.saw(piece)));
    }
}
