//! The evaluation of one request, in passes, on the data core or on a worker thread.

pub(crate) mod evaluating;
pub(crate) mod evaluation_inputs;
pub(crate) mod evaluation_job;
pub(crate) mod request_evaluator;
