package plugin

import (
	"slices"
	"testing"
)

func TestScoresAreBroughtIntoRange(t *testing.T) {
	for name, c := range map[string]struct {
		normalize   func([]int64)
		given, want []int64
	}{
		"highest":           {highest, []int64{0, 5, 10}, []int64{0, 50, 100}},
		"nothing":           {highest, []int64{0, 0}, []int64{0, 0}},
		"reversed":          {reversed, []int64{0, 5, 10}, []int64{100, 50, 0}},
		"all as good":       {reversed, []int64{0, 0}, []int64{100, 100}},
		"negative":          {ranged, []int64{-10, 0, 10}, []int64{0, 50, 100}},
		"all the same":      {ranged, []int64{3, 3}, []int64{0, 0}},
		"none":              {ranged, nil, nil},
		"one, the greatest": {highest, []int64{7}, []int64{100}},
		"spread":            {spreadNormalize, []int64{unranked, 2, 4}, []int64{0, 100, 50}},
	} {
		got := slices.Clone(c.given)
		if c.normalize(got); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
