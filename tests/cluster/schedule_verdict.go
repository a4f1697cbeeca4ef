package cluster

import (
	"fmt"
	"strconv"
)

// forbidden says why racingPolicies forbid that a write makes one stored object the other; empty if they allow it, and nil is no object.
// It is written without the policies, so that nothing that evaluates them decides about itself.
func (w RacingWrite) forbidden(before, after map[string]any) string {
	_, hadA := label(before, "a")
	_, hasA := label(after, "a")
	_, hasB := label(after, "b")
	_, hasC := label(after, "c")
	hasStatus := at(after, "status", "b") != nil
	isFewer := before != nil && after != nil && replicas(after) < replicas(before)
	switch {
	case isFewer:
		return "asks for fewer replicas"
	case w.Sub == "scale":
		return ""
	case after == nil && hadA:
		return "deletes what has the label a"
	case after == nil:
		return ""
	case hasA && hasB:
		return "leaves the labels a and b beside each other"
	case hadA && !hasA:
		return "removes the label a"
	case before == nil && hasC:
		return "creates an object with the label c"
	case hasA && hasStatus:
		return "leaves the label a beside status.b"
	}
	return ""
}

func label(object map[string]any, key string) (string, bool) {
	value, has := at(object, "metadata", "labels", key).(string)
	return value, has
}

// replicas are those that an object asks for; 0 if it has none.
func replicas(object map[string]any) int {
	number, _ := strconv.Atoi(fmt.Sprint(at(object, "spec", "replicas")))
	return number
}
