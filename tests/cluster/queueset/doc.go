// Package queueset plays random traces of events through kube-apiserver's own queue set, and compares it with
// fairgate's of the semantics Compatible: the fate of each request, the order of dispatch, and all that either
// reports its state, after every event.
//
// The traces come from fairgate's example queue_traces, each with what fairgate made of it. Here time is a
// number, nothing waits and no second goroutine takes part: a request's Finish is called when its outcome is
// known, not before, so that the original never blocks.
//
// Not here: the semantics Improved, borrowing, classification.
package queueset
