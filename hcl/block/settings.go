package block

import (
	"fmt"
	"maps"
	"net"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/gocty"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	daemons "clusterctl/daemons/config"
	"clusterctl/daemons/scheduler/profile"
	"clusterctl/hcl/config"
)

// settingsBlock is implemented by blocks whose attributes are the settings in a daemon's configuration type. Names,
// types and descriptions of settings are defined only there.
type settingsBlock interface {
	settings() any // returns a pointer to the daemon's default configuration
}

type (
	schedulerBlock struct {
		Body hcl.Body `hcl:",remain"`
	}
	controllersBlock struct {
		Body hcl.Body `hcl:",remain"`
	}
	kubeletBlock struct {
		Body hcl.Body `hcl:",remain"`
	}
	kubeProxyBlock struct {
		Body hcl.Body `hcl:",remain"`
	}
	networkBlock struct {
		Body hcl.Body `hcl:",remain"`
	}
	dnsBlock struct {
		Replicas *int     `hcl:"replicas,optional" doc:"Smallest number of name servers. They run on the control plane, and on as many nodes as are needed to reach the number." default:"2"`
		Body     hcl.Body `hcl:",remain"`
	}
	ingressBlock struct {
		Class        string            `hcl:"class,optional" doc:"Name of the IngressClass, which apply creates." default:"\"clusterctl\""`
		DefaultClass *bool             `hcl:"default_class,optional" doc:"Whether Ingresses without a class use it." default:"true"`
		GatewayAPI   *bool             `hcl:"gateway_api,optional" doc:"Whether apply installs the kinds of Gateway API that the proxy supports, and a GatewayClass with the name of the class. The kinds stay when this is set back to false, because deleting them would delete their objects." default:"false"`
		NodeSelector map[string]string `hcl:"node_selector,optional" doc:"Labels of the nodes that the proxy runs on." default:"all nodes"`
		Body         hcl.Body          `hcl:",remain"`
	}
	gitOpsBlock struct {
		Body hcl.Body `hcl:",remain"`
	}
)

func pointerTo[T any](v T) any { return &v }

func (schedulerBlock) settings() any   { return pointerTo(daemons.DefaultScheduler()) }
func (controllersBlock) settings() any { return pointerTo(daemons.DefaultControllerManager()) }
func (kubeletBlock) settings() any     { return pointerTo(daemons.DefaultKubeletSettings()) }
func (kubeProxyBlock) settings() any   { return pointerTo(daemons.DefaultProxy()) }
func (networkBlock) settings() any     { return pointerTo(daemons.DefaultNetwork()) }
func (dnsBlock) settings() any         { return pointerTo(daemons.DefaultDNS()) }
func (ingressBlock) settings() any     { return pointerTo(daemons.DefaultIngress()) }
func (gitOpsBlock) settings() any      { return pointerTo(daemons.DefaultGitOps()) }

// decodeSettings decodes the daemons' settings of the cluster block.
func decodeSettings(x *Context, b *hcl.Block, raw *clusterBlock, c *config.Cluster) (diags hcl.Diagnostics) {
	add := func(more hcl.Diagnostics) { diags = append(diags, more...) }
	if r := raw.Scheduler; r != nil {
		add(decodeChosen(x, b, "scheduler", r.Body, daemons.DefaultScheduler(), &c.Scheduler))
	}
	if r := raw.Controllers; r != nil {
		def := daemons.DefaultControllerManager()
		def.ClusterCIDR = nil
		for _, p := range c.PodCIDRs {
			def.ClusterCIDR = append(def.ClusterCIDR, p.String())
		}
		add(decodeChosen(x, b, "controllers", r.Body, def, &c.Controllers))
	}
	if r := raw.Kubelet; r != nil {
		add(decodeChosen(x, b, "kubelet", r.Body, daemons.DefaultKubeletSettings(), &c.Kubelet))
	}
	if r := raw.Proxy; r != nil {
		add(decodeChosen(x, b, "proxy", r.Body, daemons.DefaultProxy(), &c.Proxy))
	}
	if r := raw.Network; r != nil {
		add(decodeChosen(x, b, "network", r.Body, daemons.DefaultNetwork(), &c.Network))
	}
	c.DNS.Replicas = config.DNSReplicas
	if r := raw.DNS; r != nil {
		add(decodeChosen(x, b, "dns", r.Body, daemons.DefaultDNS(), &c.DNS.Settings, "replicas"))
		if c.DNS.Replicas = valueOr(r.Replicas, config.DNSReplicas); c.DNS.Replicas < 1 {
			add(
				hcl.Diagnostics{
					newError(nestedRange(b, "dns", "replicas"), "Invalid number of name servers",
						"replicas = %d: at least one machine has to answer for the cluster's names.", c.DNS.Replicas),
				},
			)
		}
	}
	if r := raw.GitOps; r != nil {
		add(decodeChosen(x, b, "gitops", r.Body, daemons.DefaultGitOps(), &c.GitOps))
	}
	if r := raw.Ingress; r != nil {
		in := &config.Ingress{
			Class:        orDefault(r.Class, "clusterctl"),
			DefaultClass: valueOr(r.DefaultClass, true),
			GatewayAPI:   valueOr(r.GatewayAPI, false),
			NodeSelector: r.NodeSelector,
		}
		c.Ingress = in
		add(decodeChosen(x, b, "ingress", r.Body, daemons.DefaultIngress(), &in.Settings, "class", "default_class",
			"gateway_api", "node_selector"))
		if errs := validation.IsDNS1123Subdomain(in.Class); len(errs) > 0 {
			add(hcl.Diagnostics{newError(nestedRange(b, "ingress", "class"), "Invalid name of a "+
				"class", "%s.", errs[0])})
		}
	}
	return diags
}

// decodeChosen decodes the settings in a block, apart from its own attributes, and validates the resulting
// configuration.
func decodeChosen[T any](
	x *Context,
	b *hcl.Block,
	block string,
	body hcl.Body,
	def T,
	into *daemons.Chosen[T],
	own ...string,
) hcl.Diagnostics {
	written, diags := body.JustAttributes()
	schema := &hcl.BodySchema{}
	for name := range written {
		if !slices.Contains(own, name) {
			schema.Attributes = append(schema.Attributes, hcl.AttributeSchema{Name: name})
		}
	}
	content, _, _ := body.PartialContent(schema) // unlike JustAttributes, this resolves the iterator of a dynamic block
	attributes := content.Attributes
	settings := daemons.Settings(&def)
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		a := attributes[name]
		i := slices.IndexFunc(settings, func(s daemons.Setting) bool { return s.Name == name })
		if i < 0 {
			diags = append(diags,
				newError(a.NameRange.Ptr(), "Unknown setting", "%s", unknownSettingHelp(block, name, &def)))
			continue
		}
		v, more := a.Expr.Value(x.Eval)
		if diags = append(diags, more...); more.HasErrors() || v.IsNull() {
			continue
		}
		value, err := toSetting(v, reflect.TypeOf(settings[i].Default))
		if err != nil {
			diags = append(diags, newError(a.Expr.Range().Ptr(), "Invalid value", "%s: %v.", name, err))
			continue
		}
		into.Choose(name, value)
	}
	cfg := def
	into.Over(&cfg)
	for _, p := range append(daemons.Problems(&cfg), declaredProblems(&cfg)...) {
		if p.With != "" && b.Type == "machine" {
			continue // checked together with the cluster's settings in checkKubelets
		}
		at := deepRange(b, block)
		if a := attributes[p.Name]; a != nil {
			at = a.Range.Ptr()
		}
		diags = append(diags, newError(at, "Invalid setting", "%s: %s.", p.Name, p.Text))
	}
	return diags
}

// unknownSettingHelp explains that a name is not a setting, with a suggestion.
func unknownSettingHelp(block, name string, def any) string {
	plain := func(text string) string { return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(text)) }
	var names []string
	for _, s := range daemons.Settings(def) {
		if plain(name) == plain(s.Name) || plain(name) == plain(s.DaemonName) {
			return fmt.Sprintf("%s has no setting %q. Did you mean %q?", block, name, s.Name)
		}
		names = append(names, s.Name)
	}
	for setting, reason := range daemons.Others(def) {
		if plain(name) == plain(setting) {
			return fmt.Sprintf("%s has no setting %q: it %s.", block, name, orDefault(reason,
				"is what clusterctl works out itself, for each machine"))
		}
	}
	hint := Suggest(name, names)
	if hint == "" {
		slices.Sort(names)
		hint = " Its settings are " + strings.Join(names, ", ") + "."
	}
	return fmt.Sprintf("%s has no setting %q: no daemon of the cluster reads it.%s", block, name, hint)
}

// toSetting converts a value to the type of a configuration field.
func toSetting(v cty.Value, field reflect.Type) (any, error) {
	var want cty.Type
	var write, hint string // what to write instead; hint is for durations
	switch reflect.New(field).Elem().Interface().(type) {
	case string:
		want, write = cty.String, "a text in quotes"
	case bool, *bool:
		want, write = cty.Bool, "true or false"
	case int, float64:
		want, write = cty.Number, "a number, as 10"
	case time.Duration, metav1.Duration:
		want, hint = cty.String, ": write a duration, as \"30s\" or \"5m\""
	case []string:
		want, write = cty.List(cty.String), `a list of texts, as ["a", "b"]`
	case map[string]string:
		want, write = cty.Map(cty.String), `names and texts, as { name = "text" }`
	default:
		return nil, fmt.Errorf("the language has no values of %s", field)
	}
	if !v.IsWhollyKnown() {
		return nil, fmt.Errorf("the value is not known before the cluster is there")
	}
	if hint != "" && v.Type() != cty.String {
		if v.Type() == cty.Number {
			return nil, fmt.Errorf("a number alone has no unit%s", hint)
		}
		return nil, fmt.Errorf("a duration is required%s", hint)
	}
	v, err := convert.Convert(v, want)
	if err != nil {
		return nil, fmt.Errorf("%w: write %s", err, write)
	}
	if hint != "" {
		d, err := time.ParseDuration(v.AsString())
		if err != nil {
			return nil, fmt.Errorf("%q is not a duration%s", v.AsString(), hint)
		}
		if field == reflect.TypeFor[metav1.Duration]() {
			return metav1.Duration{Duration: d}, nil
		}
		return d, nil
	}
	into := reflect.New(field)
	if err := gocty.FromCtyValue(v, into.Interface()); err != nil {
		return nil, err
	}
	return into.Elem().Interface(), nil
}

// declaredProblems returns problems with settings that a daemon would accept but a configuration may not contain.
func declaredProblems(cfg any) (list []daemons.Problem) {
	everywhere := func(name, address string) {
		host, port, err := net.SplitHostPort(address)
		if err == nil && (!isAnyMachine(host) || port == "0") || address == "" {
			list = append(
				list,
				daemons.Problem{
					Name: name,
					Text: fmt.Sprintf("%q: every machine listens there, and clusterctl asks there whether the daemon "+
						"is well; write 127.0.0.1 or 0.0.0.0 with a port", address),
				},
			)
		}
	}
	serving := func(s daemons.Serving) {
		if !isAnyMachine(s.BindAddress) {
			list = append(
				list,
				daemons.Problem{
					Name: "bind_address",
					Text: fmt.Sprintf("%q: every machine listens there; write 127.0.0.1 or 0.0.0.0", s.BindAddress),
				},
			)
		}
	}
	switch cfg := cfg.(type) {
	case *daemons.Scheduler:
		serving(cfg.Serving)
		if cfg.Config == "" {
			break
		}
		if _, err := profile.Parse([]byte(cfg.Config)); err != nil {
			list = append(list, daemons.Problem{Name: "config", Text: fmt.Sprintf("it is not a "+
				"KubeSchedulerConfiguration that the scheduler can carry out: %v. The value is the YAML text itself: "+
				"for a file, write config = file(\"PATH\")", err)})
		}
	case *daemons.ControllerManager:
		serving(cfg.Serving)
	case *daemons.Proxy:
		everywhere("metrics_bind_address", cfg.MetricsBindAddress)
	case *daemons.Network:
		everywhere("health_address", cfg.HealthAddress)
	case *daemons.DNS:
		everywhere("health_address", cfg.HealthAddress)
	case *daemons.Ingress:
		everywhere("health_address", cfg.HealthAddress)
	}
	return list
}

func isAnyMachine(host string) bool { return host == "127.0.0.1" || host == "0.0.0.0" }

// checkKubelets validates the combined kubelet settings of the cluster and of each machine.
func checkKubelets(c *config.Cluster, at func(config.Source) *hcl.Range) (diags hcl.Diagnostics) {
	manager := daemons.DefaultControllerManager()
	c.Controllers.Over(&manager)
	addresses := 1<<(32-manager.NodeCIDRMaskSize) - 3 // without the network, broadcast and gateway addresses
	for i := range c.Machines {
		m := &c.Machines[i]
		cfg := daemons.DefaultKubeletSettings()
		c.Kubelet.Over(&cfg)
		m.Kubelet.Over(&cfg)
		for _, p := range daemons.Problems(&cfg) {
			if p.With != "" && len(m.Kubelet.Names()) > 0 {
				diags = append(diags, newError(at(m.Source), "Invalid setting",
					"The kubelet of %s, with the cluster's settings: %s: %s.", m.Address, p.Name, p.Text))
			}
		}
		if m.HasRole(config.RoleNode) && cfg.MaxPods > addresses {
			d := newError(at(m.Source), "More pods than addresses", "max_pods of %s is %d, and a node's piece of the "+
				"pod network, a /%d, has %d addresses: pods beyond them, but for those with the host's network, would "+
				"wait in ContainerCreating for ever. Lower max_pods; or, in a cluster that is yet to be made, "+
				"controllers { node_cidr_mask_size }.", m.Address, cfg.MaxPods, manager.NodeCIDRMaskSize, addresses)
			d.Severity = hcl.DiagWarning
			diags = append(diags, d)
		}
	}
	return diags
}
