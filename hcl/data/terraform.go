package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"
)

// Terraform parses the outputs in a state file or in the output of terraform output -json. secret has the names of the
// sensitive ones.
func Terraform(text []byte) (outputs map[string]cty.Value, secret []string, err error) {
	type output struct {
		Sensitive bool            `json:"sensitive"`
		Type      json.RawMessage `json:"type"`
		Value     json.RawMessage `json:"value"`
	}
	var state struct {
		Version int               `json:"version"`
		Outputs map[string]output `json:"outputs"`
	}
	found := map[string]output{}
	if err := json.Unmarshal(text, &state); err == nil && state.Version > 0 && state.Outputs != nil {
		if state.Version != 4 {
			return nil, nil, fmt.Errorf(
				"the state file is of version %d, and 4 is the one that Terraform 0.12 and later writes", state.Version)
		}
		found = state.Outputs
	} else if err := json.Unmarshal(text, &found); err != nil {
		return nil, nil, errors.New("this is neither what terraform output -json prints nor a state file")
	}
	outputs = map[string]cty.Value{}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		o := found[name]
		if o.Value == nil {
			return nil, nil, fmt.Errorf(
				"output %q has no value: this is neither what terraform output -json prints nor a state file", name)
		}
		var v cty.Value
		ty, err := ctyjson.UnmarshalType(o.Type)
		if err == nil {
			v, err = ctyjson.Unmarshal(o.Value, ty)
		} else {
			v, err = JSON(o.Value)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("output %q: %w", name, err)
		}
		outputs[name] = v
		if o.Sensitive {
			secret = append(secret, name)
		}
	}
	return outputs, secret, nil
}
