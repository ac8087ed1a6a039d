package plan

// Stage is a part of a run. The next stage begins when it is complete, unless InParallel is set.
type Stage struct {
	Title       string   `json:"title"`
	Machines    []string `json:"machines,omitempty"` // addresses, in the order in which work on them begins
	Objects     int      `json:"objects,omitempty"`
	Parallelism int      `json:"atOnce,omitempty"` // how many machines at the same time; zero means all
	InParallel  bool     `json:"beside,omitempty"` // only the end of the run waits for it
}
