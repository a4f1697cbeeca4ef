//! What the patterns of policies may take, in counted steps and bytes.
//!
//! The limits are far above what policies use: a pattern such as `^[\p{L}\p{N}_.-]{1,253}$` takes 5000 steps and 13 KB.
//! Equal patterns count once in a policy, and once in a set. What exceeds a limit is an expression that does not compile: a
//! policy with it cannot be written, and where it comes from elsewhere, it is an error for each request that it matches.
//!
//! Not here: the limit of one expression ([`PatternLimit::EXPRESSION`]), and what evaluation may take.

use fairgate_cel::PatternLimit;

/// What the patterns of one policy may take: 40 ms or so.
pub(crate) const OF_POLICY: PatternLimit = PatternLimit {
    of: "the policy",
    steps: 4_000_000,
    bytes: 16 << 20,
};

/// What the patterns of all policies may take: a second or so. Those of the policies after the one that exceeds it do not
/// compile.
pub(crate) const OF_SET: PatternLimit = PatternLimit {
    of: "all policies",
    steps: 100_000_000,
    bytes: 256 << 20,
};
