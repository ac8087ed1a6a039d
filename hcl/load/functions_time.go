package load

import (
	"time"

	"github.com/google/uuid"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// addRunFunctions adds the functions whose results differ between runs. Within a run, all times are the same.
func addRunFunctions(f map[string]function.Function, now time.Time) {
	f["timestamp"] = textFunc(0, func([]string) (string, error) { return now.UTC().Format(time.RFC3339), nil })
	f["plantimestamp"] = f["timestamp"]
	f["uuid"] = textFunc(0, func([]string) (string, error) {
		id, err := uuid.NewRandom()
		return id.String(), err
	})
}

// timeCompareFunc compares two times: -1, 0 or 1.
var timeCompareFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "a", Type: cty.String}, {Name: "b", Type: cty.String}},
	Type:   function.StaticReturnType(cty.Number),
	Impl: func(a []cty.Value, _ cty.Type) (cty.Value, error) {
		times := make([]time.Time, len(a))
		for i, v := range a {
			var err error
			if times[i], err = time.Parse(time.RFC3339, v.AsString()); err != nil {
				return cty.NilVal, function.NewArgErrorf(i, "must be a time of RFC 3339, as 2026-11-27T10:00:00Z: %w",
					err)
			}
		}
		return cty.NumberIntVal(int64(times[0].Compare(times[1]))), nil
	},
})
