package check

import "testing"

func TestWatchesThatMissOrReorderEventsAreRejected(t *testing.T) {
	good := []Event{{"ADDED", "x", 11}, {"MODIFIED", "x", 12}, {"ADDED", "y", 13}, {"DELETED", "x", 14}}
	end := map[string]int64{"y": 13, "z": 9}
	listed := map[string]int64{"z": 9}
	for name, test := range map[string]struct {
		events  []Event
		written []int64
		end     map[string]int64
		good    bool
	}{
		"all of it": {good, []int64{11, 12, 13}, end, true},
		"a gap that a writer knows of": {append([]Event{{"ADDED", "w", 10}}, good[0], good[1], good[3]), []int64{13},
			map[string]int64{"w": 10, "z": 9}, false},
		"a gap at the end":    {good[:3], nil, end, false},
		"a gap in the middle": {[]Event{good[0], good[2], good[3]}, []int64{12}, end, false},
		"out of order":        {[]Event{good[0], good[2], good[1], good[3]}, nil, end, false},
		"twice":               {[]Event{good[0], good[1], good[1], good[2], good[3]}, nil, end, false},
		"after its deletion":  {append(append([]Event{}, good...), Event{"MODIFIED", "x", 15}), nil, end, false},
		"born again under its UID": {append(append([]Event{}, good...), Event{"ADDED", "x", 15}), nil,
			map[string]int64{"x": 15, "y": 13, "z": 9}, false},
		"added though it was listed": {append([]Event{{"ADDED", "z", 10}}, good...), nil,
			map[string]int64{"y": 13, "z": 10}, false},
		"changed though never added": {append(append([]Event{}, good...), Event{"MODIFIED", "v", 15}), nil,
			map[string]int64{"y": 13, "z": 9, "v": 15}, false},
		"an end that has less":     {good, nil, map[string]int64{"y": 13}, false},
		"it never reached the end": {good, nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := Watch{Name: "w", From: 9, Listed: listed, Events: test.events, Upto: 15, End: test.end}
			if findings := Watches([]Watch{w}, test.written); (len(findings) == 0) != test.good {
				t.Errorf("good is %v, findings %v", test.good, findings)
			}
		})
	}
}

func TestWatchersMustSeeTheEventsOfOthers(t *testing.T) {
	all := Watch{Name: "all", Events: []Event{{"ADDED", "x", 1}, {"DELETED", "x", 2}}, Upto: 3, End: map[string]int64{}}
	less := Watch{Name: "less", Upto: 3, End: map[string]int64{}}
	if findings := Watches([]Watch{all, less}, nil); len(findings) != 2 {
		t.Errorf("a watcher that missed a birth and a death: %v", findings)
	}
}
