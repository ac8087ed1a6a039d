package report

import (
	"regexp"
	"slices"
	"testing"
)

func TestTheHeadingNamesTheTargetAndTheMachine(t *testing.T) {
	want := regexp.MustCompile("^# Costs\n\nWritten by `make bench-x` on [0-9]{4}-[0-9]{2}-[0-9]{2}: [0-9]+ cores, " +
		"Linux \\S+, go\\S+; load average when it ended [0-9. ]+\\.\n$")
	if got := Heading("Costs", "bench-x"); !want.MatchString(got) {
		t.Errorf("the heading is %q", got)
	}
}

func TestTheMedianIsTheMiddleOfTheSortedValues(t *testing.T) {
	values := []float64{3, 1, 2}
	if got := Median(values); got != 2 {
		t.Errorf("the median is %v", got)
	}
	if !slices.Equal(values, []float64{3, 1, 2}) {
		t.Error("the values were sorted in place")
	}
}

func TestOnlyKnownPartsAreSelected(t *testing.T) {
	parts := []string{"a", "b", "c"}
	for only, want := range map[string][]string{"": parts, "b": {"b"}, "c,a": {"c", "a"}} {
		if got, err := SelectParts(parts, only); err != nil || !slices.Equal(got, want) {
			t.Errorf("-only=%s selects %v, %v", only, got, err)
		}
	}
	if _, err := SelectParts(parts, "a,x"); err == nil {
		t.Error("an unknown part is accepted")
	}
}
