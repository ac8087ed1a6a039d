package plan

import (
	"errors"
	"fmt"
	"strings"

	"clusterctl/hcl/config"
	"clusterctl/provision/state"
)

// LossOf describes which data is permanently lost when an object is deleted. It returns "" if the object can be
// recreated from the configuration.
func LossOf(o state.Object) string {
	group, _, grouped := strings.Cut(o.APIVersion, "/")
	switch {
	case o.Kind == "Namespace" && !grouped:
		return "everything in the namespace is deleted with it"
	case o.Kind == "CustomResourceDefinition" && group == "apiextensions.k8s.io":
		return "all objects of its kind are deleted with it"
	case o.Kind == "PersistentVolumeClaim" && !grouped:
		return "the data of its volume is deleted with it, unless the volume is retained"
	}
	return ""
}

// CheckProtected returns an error for each machine that the plan removes or replaces although prevent_destroy protects
// it. If the machine's block is deleted, the state decides.
func (p *Plan) CheckProtected(c *config.Cluster, s *state.State) error {
	var errs []error
	for _, m := range p.Machines {
		if m.Action != Remove && m.Action != Replace {
			continue
		}
		declared, ok := c.Machine(m.Address)
		switch {
		case ok && declared.PreventDestroy:
			errs = append(errs, fmt.Errorf("%s (%s:%d): it says prevent_destroy, and would be %s", m.Address,
				declared.Source.File, declared.Source.Line, removalVerbs[m.Action]))
		case !ok && s.Machines[m.Address].Machine.PreventDestroy:
			errs = append(errs, fmt.Errorf("%s: it would be %s, and was applied with prevent_destroy. Bring its block "+
				"back and apply it once without", m.Address, removalVerbs[m.Action]))
		}
	}
	return errors.Join(errs...)
}

var removalVerbs = map[string]string{Remove: "removed", Replace: "replaced"}
