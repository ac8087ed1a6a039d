package block

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/zclconf/go-cty/cty"

	"clusterctl/hcl/config"
)

// AddressTypes are the block types moved, import and removed, which refer to addresses. They have no labels, are not
// evaluated, and cannot be referenced.
var AddressTypes = []Type{
	{
		"moved",
		nil,
		decodeMoved,
		"Something that was applied with one address is now declared with another. Machines are recognized without " +
			"it, unless their network address has changed. Objects need it if another block declares them now.",
		movedBlock{},
		"",
	},
	{
		"import",
		nil,
		decodeImport,
		"An existing object that another client created is taken over. Without the block, apply refuses such an " +
			"object. The block can be deleted once it has been applied.",
		importBlock{},
		"",
	},
	{"removed", nil, decodeRemoved, "What happens to something that is no longer declared.", removedBlock{}, ""},
}

// FindAddressType returns the statement type with a name.
func FindAddressType(name string) (Type, bool) {
	i := slices.IndexFunc(AddressTypes, func(t Type) bool { return t.Name == name })
	if i < 0 {
		return Type{}, false
	}
	return AddressTypes[i], true
}

type movedBlock struct {
	From hcl.Expression `hcl:"from" doc:"The address that it was applied with, as machine.old or \"object.v1.ConfigMap.motd\"."`
	To   hcl.Expression `hcl:"to" doc:"The address that it is declared with."`
}

type importBlock struct {
	To hcl.Expression `hcl:"to" doc:"The address that it is declared with: workload.web, manifests.site or \"object.v1.ConfigMap.motd\"."`
}

type removedBlock struct {
	From      hcl.Expression         `hcl:"from" doc:"The address that it was applied with. Its block has been removed from the configuration."`
	Lifecycle *removedLifecycleBlock `hcl:"lifecycle,block" doc:"What happens to it."`
}

type removedLifecycleBlock struct {
	Destroy *bool `hcl:"destroy,optional" doc:"Whether it is deleted; with false it stays, and clusterctl no longer manages it." default:"true"`
}

// decodeAddresses decodes a block into raw, and returns the addresses of its attributes, which are fields of raw.
func decodeAddresses(b *hcl.Block, raw any, attributes ...*hcl.Expression) ([]string, hcl.Diagnostics) {
	diags := gohcl.DecodeBody(ExplainErrors(b.Body), nil, raw)
	if diags.HasErrors() {
		return nil, diags
	}
	addresses := make([]string, len(attributes))
	for i, a := range attributes {
		var more hcl.Diagnostics
		addresses[i], more = parseAddress(*a)
		diags = append(diags, more...)
	}
	return addresses, diags
}

func decodeMoved(_ *Context, b *hcl.Block, c *config.Cluster) (cty.Value, hcl.Diagnostics) {
	var raw movedBlock
	addresses, diags := decodeAddresses(b, &raw, &raw.From, &raw.To)
	if !diags.HasErrors() {
		c.Moved = append(c.Moved, config.Moved{From: addresses[0], To: addresses[1], Source: sourceOf(b)})
	}
	return cty.NilVal, diags
}

func decodeImport(_ *Context, b *hcl.Block, c *config.Cluster) (cty.Value, hcl.Diagnostics) {
	var raw importBlock
	addresses, diags := decodeAddresses(b, &raw, &raw.To)
	if !diags.HasErrors() {
		c.Imports = append(c.Imports, config.Import{To: addresses[0], Source: sourceOf(b)})
	}
	return cty.NilVal, diags
}

func decodeRemoved(_ *Context, b *hcl.Block, c *config.Cluster) (cty.Value, hcl.Diagnostics) {
	var raw removedBlock
	addresses, diags := decodeAddresses(b, &raw, &raw.From)
	if !diags.HasErrors() {
		c.Removed = append(
			c.Removed,
			config.Removed{
				From:    addresses[0],
				Destroy: raw.Lifecycle == nil || valueOr(raw.Lifecycle.Destroy, true),
				Source:  sourceOf(b),
			},
		)
	}
	return cty.NilVal, diags
}

// parseAddress parses an address, either a reference such as machine.a["x"] or a string. It does not evaluate it,
// because it may no longer be declared.
func parseAddress(expr hcl.Expression) (string, hcl.Diagnostics) {
	wrong := func() hcl.Diagnostics {
		return hcl.Diagnostics{
			newError(expr.Range().Ptr(), "Invalid address",
				"An address is machine.NAME, machine.NAME[\"KEY\"], machine.NAME[0], workload.NAME, "+
					"storage_class.NAME, git_source.NAME, helm_release.NAME, kustomization.NAME, "+
					"manifests.NAME or \"object.VERSION.KIND.NAME\"."),
		}
	}
	if v, diags := expr.Value(nil); !diags.HasErrors() && v.Type() == cty.String && v.IsKnown() && !v.IsNull() {
		if root, rest, _ := strings.Cut(v.AsString(), "."); rest == "" || !hasAddress(root) {
			return "", wrong()
		}
		return v.AsString(), nil
	}
	t, diags := hcl.AbsTraversalForExpr(expr)
	if diags.HasErrors() || len(t) < 2 || !hasAddress(t.RootName()) {
		return "", wrong()
	}
	address := t.RootName()
	for _, s := range t[1:] {
		switch s := s.(type) {
		case hcl.TraverseAttr:
			address += "." + s.Name
		case hcl.TraverseIndex:
			if s.Key.Type() == cty.String {
				address += fmt.Sprintf("[%q]", s.Key.AsString())
			} else {
				address += "[" + s.Key.AsBigFloat().String() + "]"
			}
		default:
			return "", wrong()
		}
	}
	return address, nil
}

func hasAddress(root string) bool {
	switch root {
	case "machine", "workload", "object", "storage_class", "git_source", "helm_release", "kustomization", "manifests",
		"module":
		return true
	}
	return false
}

// checkMoves returns errors for moved, import and removed blocks that contradict the declarations.
func checkMoves(c *config.Cluster, at func(config.Source) *hcl.Range) (diags hcl.Diagnostics) {
	if len(c.Moved)+len(c.Imports)+len(c.Removed) == 0 {
		return nil
	}
	declared, names := map[string]config.Source{}, map[string]string{}
	add := func(address string, s config.Source) {
		declared[address] = s
		for i, r := range address { // also the block without its index, and the enclosing modules
			if (r == '[' || r == '.') && config.Includes(address[:i], address) {
				declared[address[:i]] = s
			}
		}
	}
	for _, m := range c.Machines {
		add(m.Address, m.Source)
	}
	for _, w := range c.Workloads {
		add(w.Address, w.Source)
		names[w.Address] = w.Name
	}
	for _, o := range c.Objects {
		add(o.Address, o.Source)
	}
	deferred := func(address string) bool { // it may be declared when more values are known
		return slices.ContainsFunc(c.Deferred, func(d string) bool { return config.Includes(d, address) })
	}
	from := map[string]config.Source{}
	isGone := func(what, address string, s config.Source) {
		if other, ok := declared[address]; ok {
			diags = append(diags, newError(at(s), "Declared and "+what,
				"%s is declared at %s: take that block out, or this one.", address, positionText(other)))
		}
		if other, ok := from[address]; ok {
			diags = append(diags, newError(at(s), "Said twice", "What becomes of %s is already said at %s.", address,
				positionText(other)))
		}
		from[address] = s
	}
	for _, m := range c.Moved {
		isGone("moved", m.From, m.Source)
		if _, ok := declared[m.To]; !ok && !deferred(m.To) {
			diags = append(diags, newError(at(m.Source), "Moved to nothing",
				"There is no %s: to is the address of a block that is declared.", m.To))
		}
		if typeOfAddress(m.From) != typeOfAddress(m.To) {
			diags = append(diags, newError(at(m.Source), "Moved to another kind of block", "%s cannot become %s.",
				m.From, m.To))
		}
		if typeOfAddress(m.From) == "workload" && names[m.To] != "" && defaultNameOf(m.From) != names[m.To] {
			diags = append(diags, newError(at(m.Source), "Workload under another name",
				"The objects of a workload have its name, and an object cannot be renamed: %s is made beside %s, "+
					"which goes when its block does. Without this block apply does both at once; with two blocks for "+
					"a while, one after the other.", m.To, m.From))
		}
	}
	for _, i := range c.Imports {
		switch _, ok := declared[i.To]; {
		case ok && typeOfAddress(i.To) == "machine":
			diags = append(diags, newError(at(i.Source), "Machine that is imported",
				"A machine that serves this cluster is recognized without it."))
		case !ok && !deferred(i.To) &&
			!slices.ContainsFunc(c.Objects, func(o config.Object) bool { return o.Block == i.To }):
			diags = append(diags, newError(at(i.Source), "Imported to nothing",
				"There is no %s: to is the address of a block that is declared.", i.To))
		}
	}
	for _, r := range c.Removed {
		isGone("removed", r.From, r.Source)
	}
	return diags
}

// withinModules matches the modules at the beginning of an address. moduleStep matches one of them.
var (
	withinModules = regexp.MustCompile(`^(` + moduleStep.String() + `)+`)
	moduleStep    = regexp.MustCompile(`module\.([^.\[]+)(\["(?:[^"\\]|\\.)*"\]|\[[0-9]+\])?\.`)
)

// typeOfAddress returns the block type in an address, without its modules, or "module" for the address of a module.
func typeOfAddress(address string) string {
	kind, _, _ := strings.Cut(address[len(withinModules.FindString(address)):], ".")
	return kind
}

// defaultNameOf returns the default name that the address of a workload implies, such as web-a for workload.web["a"].
func defaultNameOf(address string) string {
	modules := withinModules.FindString(address)
	var parts []string
	add := func(name, key string) {
		if parts = append(parts, name); key != "" {
			parts = append(parts, strings.Trim(key, "[\"]"))
		}
	}
	for _, m := range moduleStep.FindAllStringSubmatch(modules, -1) {
		add(m[1], m[2])
	}
	name, key, _ := strings.Cut(strings.TrimPrefix(address[len(modules):], "workload."), "[")
	add(name, key)
	return toName(strings.Join(parts, "-"))
}
