package plugin

import (
	"slices"
	"testing"
)

func TestScoresAreScaledIntoRange(t *testing.T) {
	for name, c := range map[string]struct {
		normalize   func([]int64)
		given, want []int64
	}{
		"highest":           {scaleToHighest, []int64{0, 5, 10}, []int64{0, 50, 100}},
		"nothing":           {scaleToHighest, []int64{0, 0}, []int64{0, 0}},
		"reversed":          {scaleReversed, []int64{0, 5, 10}, []int64{100, 50, 0}},
		"all as good":       {scaleReversed, []int64{0, 0}, []int64{100, 100}},
		"negative":          {scaleRange, []int64{-10, 0, 10}, []int64{0, 50, 100}},
		"all the same":      {scaleRange, []int64{3, 3}, []int64{0, 0}},
		"none":              {scaleRange, nil, nil},
		"one, the greatest": {scaleToHighest, []int64{7}, []int64{100}},
		"spread":            {spreadNormalize, []int64{unranked, 2, 4}, []int64{0, 100, 50}},
	} {
		got := slices.Clone(c.given)
		if c.normalize(got); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
