package plan

// Stage is a part of a run. What comes after it begins when it is over, unless it is beside.
type Stage struct {
	Title    string   `json:"title"`
	Machines []string `json:"machines,omitempty"` // their addresses, in the order in which they are begun
	Objects  int      `json:"objects,omitempty"`
	AtOnce   int      `json:"atOnce,omitempty"` // so many machines at the same time; all when zero
	Beside   bool     `json:"beside,omitempty"` // nothing waits for its end but the end of the run
}
