package workload

import "clusterctl/hcl/config"

// setWaves sets the wave of every object: one later than the last of the objects that it depends on. It marks the
// objects that others depend on. Cycles are refused when the configuration is read.
func setWaves(list []Desired) {
	byBlock := map[string][]int{}
	hasDependencies := false
	for i, d := range list {
		byBlock[d.Block] = append(byBlock[d.Block], i)
		hasDependencies = hasDependencies || len(d.DependsOn) > 0
	}
	if !hasDependencies {
		return
	}
	waves := map[string]int{} // waves by block; -1 while being computed
	var wave func(block string) int
	wave = func(block string) int {
		if w, ok := waves[block]; ok {
			return max(w, 0)
		}
		waves[block] = -1
		last := -1
		for _, i := range byBlock[block] {
			for _, after := range list[i].DependsOn {
				for other := range byBlock {
					if other != block && config.Includes(after, other) {
						last = max(last, wave(other))
						for _, first := range byBlock[other] {
							list[first].HasDependents = true
						}
					}
				}
			}
		}
		waves[block] = last + 1
		return last + 1
	}
	for i := range list {
		list[i].Wave = wave(list[i].Block)
	}
}
