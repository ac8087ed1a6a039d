package workload

import "clusterctl/hcl/config"

// waves says of every object in which wave it is applied: one later than the last of those that it depends on. Circles
// are refused when the configuration is read.
func waves(list []Desired) {
	byBlock := map[string][]int{}
	waiting := false
	for i, d := range list {
		byBlock[d.Block] = append(byBlock[d.Block], i)
		waiting = waiting || len(d.After) > 0
	}
	if !waiting {
		return
	}
	worked := map[string]int{} // waves by block; -1 while it is being worked out
	var wave func(block string) int
	wave = func(block string) int {
		if w, ok := worked[block]; ok {
			return max(w, 0)
		}
		worked[block] = -1
		last := -1
		for _, i := range byBlock[block] {
			for _, after := range list[i].After {
				for other := range byBlock {
					if other != block && config.Covers(after, other) {
						last = max(last, wave(other))
					}
				}
			}
		}
		worked[block] = last + 1
		return last + 1
	}
	for i := range list {
		list[i].Wave = wave(list[i].Block)
	}
}
