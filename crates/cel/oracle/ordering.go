package main

import "sort"

// sortOutcomes puts outcomes in an order that does not depend on which was seen first.
func sortOutcomes(all []outcome) {
	sort.Slice(all, func(i, j int) bool { return mustJSON(all[i]) < mustJSON(all[j]) })
}
