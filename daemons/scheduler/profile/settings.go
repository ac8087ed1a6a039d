package profile

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	componentconfig "k8s.io/component-base/config/v1alpha1"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	"clusterctl/daemons/scheduler/plugin"
)

// Load reads a KubeSchedulerConfiguration from a file. It returns the defaults for an empty path, and an error for
// unsupported settings.
func Load(path string) (Settings, error) {
	if path == "" {
		return DefaultSettings(), nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return Settings{}, fmt.Errorf("read the scheduler's configuration: %w", err)
	}
	s, err := Parse(raw)
	if err != nil {
		return Settings{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// Parse decodes a KubeSchedulerConfiguration.
func Parse(raw []byte) (Settings, error) {
	var c configv1.KubeSchedulerConfiguration
	if err := yaml.UnmarshalStrict(raw, &c); err != nil {
		return Settings{}, err
	}
	if c.APIVersion != configv1.SchemeGroupVersion.String() || c.Kind != "KubeSchedulerConfiguration" {
		return Settings{}, fmt.Errorf("apiVersion and kind must be %s and KubeSchedulerConfiguration",
			configv1.SchemeGroupVersion)
	}
	if err := checkUnsupported(&c); err != nil {
		return Settings{}, err
	}
	s := DefaultSettings()
	if n := c.PodInitialBackoffSeconds; n != nil {
		if *n <= 0 {
			return Settings{}, errors.New("podInitialBackoffSeconds must be greater than 0")
		}
		s.FirstBackoff = time.Duration(*n) * time.Second
	}
	if n := c.PodMaxBackoffSeconds; n != nil {
		s.MaxBackoff = time.Duration(*n) * time.Second
	}
	if s.MaxBackoff < s.FirstBackoff {
		return Settings{}, errors.New("podMaxBackoffSeconds must not be less than podInitialBackoffSeconds")
	}
	percent := 0
	if p := c.PercentageOfNodesToScore; p != nil {
		if percent = int(*p); percent < 0 || percent > 100 {
			return Settings{}, errors.New("percentageOfNodesToScore must be from 0 to 100")
		}
	}
	if len(c.Profiles) == 0 {
		s.Profiles[0].Percent = percent
		return s, nil
	}
	s.Profiles = nil
	for i := range c.Profiles {
		p, err := newProfile(&c.Profiles[i], percent)
		if err != nil {
			return Settings{}, fmt.Errorf("profiles[%d]: %w", i, err)
		}
		if s.Profile(p.Name) != nil {
			return Settings{}, fmt.Errorf("profiles[%d].schedulerName: %q is there twice", i, p.Name)
		}
		s.Profiles = append(s.Profiles, p)
	}
	return s, nil
}

// checkUnsupported returns an error for settings that have a flag instead, or are not supported.
func checkUnsupported(c *configv1.KubeSchedulerConfiguration) error {
	switch {
	case c.Parallelism != nil:
		return errors.New("parallelism cannot be set: one goroutine looks at all nodes")
	case len(c.Extenders) > 0:
		return errors.New("extenders are not supported")
	case c.ClientConnection.Kubeconfig != "":
		return errors.New("clientConnection.kubeconfig: use the flag --kubeconfig")
	case c.ClientConnection != (componentconfig.ClientConnectionConfiguration{}):
		return errors.New("clientConnection: content types and rates cannot be set")
	case c.EnableProfiling != nil || c.EnableContentionProfiling != nil:
		return errors.New("enableProfiling: use the flag --profiling")
	case c.LeaderElection.LeaderElect != nil && !*c.LeaderElection.LeaderElect:
		return errors.New("leaderElection.leaderElect: use the flag --leader-elect")
	case c.LeaderElection.ResourceName != "" && c.LeaderElection.ResourceName != Lease,
		c.LeaderElection.ResourceNamespace != "" && c.LeaderElection.ResourceNamespace != metav1.NamespaceSystem:
		return fmt.Errorf("leaderElection: the lease cannot be chosen, it is %s/%s", metav1.NamespaceSystem, Lease)
	case c.LeaderElection.LeaseDuration.Duration != 0 || c.LeaderElection.RenewDeadline.Duration != 0 ||
		c.LeaderElection.RetryPeriod.Duration != 0:
		return errors.New("leaderElection: leaseDuration, renewDeadline and retryPeriod cannot be set")
	case c.LeaderElection.ResourceLock != "" && c.LeaderElection.ResourceLock != "leases":
		return errors.New("leaderElection.resourceLock must be leases")
	case c.DelayCacheUntilActive:
		return errors.New("delayCacheUntilActive cannot be set: it is always so, standby schedulers hold no caches")
	}
	return nil
}

func newProfile(c *configv1.KubeSchedulerProfile, percent int) (*Profile, error) {
	p := Default()
	p.Percent = percent
	if c.SchedulerName != nil {
		p.Name = *c.SchedulerName
	}
	if p.Name == "" {
		return nil, errors.New("schedulerName must not be empty")
	}
	if n := c.PercentageOfNodesToScore; n != nil {
		if p.Percent = int(*n); p.Percent < 0 || p.Percent > 100 {
			return nil, errors.New("percentageOfNodesToScore must be from 0 to 100")
		}
	}
	if c.Plugins != nil {
		if err := p.setPlugins(c.Plugins); err != nil {
			return nil, fmt.Errorf("plugins.%w", err)
		}
	}
	given := map[string]bool{}
	for _, a := range c.PluginConfig {
		if given[a.Name] {
			return nil, fmt.Errorf("pluginConfig: %q is there twice", a.Name)
		}
		given[a.Name] = true
		if err := p.setArguments(a.Name, a.Args); err != nil {
			return nil, fmt.Errorf("pluginConfig[%s]: %w", a.Name, err)
		}
	}
	return p, nil
}

// builtInPlugins lists plugins that have no filter or score here, and whose work is always done.
var builtInPlugins = map[string]bool{
	"PrioritySort":      true,
	"DefaultBinder":     true,
	"SchedulingGates":   true,
	"DefaultPreemption": true,
}

// extensionPoint is an extension point, with what a profile configures for it.
type extensionPoint struct {
	name       string
	set        *configv1.PluginSet
	implements func(*plugin.Plugin) bool
	enable     func(*Profile, *plugin.Plugin, int64)
	disable    func(*Profile, string)
}

func isFilter(p *plugin.Plugin) bool { return p.Filter != nil || p.RefuseAll != nil }
func isScore(p *plugin.Plugin) bool  { return p.Score != nil }

// setPlugins enables and disables plugins.
func (p *Profile) setPlugins(c *configv1.Plugins) error {
	for _, set := range []struct {
		name string
		set  *configv1.PluginSet
	}{
		{"preEnqueue", &c.PreEnqueue}, {"queueSort", &c.QueueSort}, {"preFilter", &c.PreFilter},
		{"preScore", &c.PreScore}, {"reserve", &c.Reserve},
		{"permit", &c.Permit}, {"preBind", &c.PreBind}, {"bind", &c.Bind}, {"postBind", &c.PostBind},
		{"placementGenerate", &c.PlacementGenerate}, {"placementScore", &c.PlacementScore},
		{"podGroupPostFilter", &c.PodGroupPostFilter},
	} {
		if len(set.set.Enabled)+len(set.set.Disabled) > 0 {
			return fmt.Errorf("%s: plugins are turned on and off by multiPoint, filter, postFilter and score here",
				set.name)
		}
	}
	for _, one := range c.PostFilter.Disabled {
		if one.Name != "*" && one.Name != "DefaultPreemption" {
			return fmt.Errorf("postFilter: there is no plugin %q", one.Name)
		}
		p.Preempt.IsDisabled = true
	}
	for _, one := range c.PostFilter.Enabled {
		if one.Name != "DefaultPreemption" {
			return fmt.Errorf("postFilter: there is no plugin %q", one.Name)
		}
		p.Preempt.IsDisabled = false
	}
	offFilter := func(p *Profile, name string) {
		p.Filters = slices.DeleteFunc(p.Filters, func(f *plugin.Plugin) bool { return name == "*" || f.Name == name })
	}
	offScore := func(p *Profile, name string) {
		p.Scores = slices.DeleteFunc(p.Scores, func(s Score) bool { return name == "*" || s.Name == name })
	}
	onFilter := func(p *Profile, one *plugin.Plugin, _ int64) {
		if isFilter(one) {
			offFilter(p, one.Name)
			p.Filters = append(p.Filters, one)
		}
	}
	onScore := func(p *Profile, one *plugin.Plugin, weight int64) {
		if isScore(one) {
			offScore(p, one.Name)
			p.Scores = append(p.Scores,
				Score{one, cmp.Or(weight, 1)}) // a plugin that is enabled by name gets the configured weight
		}
	}
	for _, at := range []extensionPoint{
		{"multiPoint", &c.MultiPoint, func(one *plugin.Plugin) bool { return isFilter(one) || isScore(one) },
			func(p *Profile, one *plugin.Plugin, w int64) { onFilter(p, one, w); onScore(p, one, w) },
			func(p *Profile, name string) {
				offFilter(p, name)
				offScore(p, name)
				p.Preempt.IsDisabled = p.Preempt.IsDisabled || name == "*" || name == "DefaultPreemption"
			}},
		{"filter", &c.Filter, isFilter, onFilter, offFilter},
		{"score", &c.Score, isScore, onScore, offScore},
	} {
		if err := p.setExtensionPoint(at); err != nil {
			return err
		}
	}
	return nil
}

func (p *Profile) setExtensionPoint(at extensionPoint) error {
	for _, one := range at.set.Disabled {
		if found, ok := plugin.ByName(one.Name); one.Name != "*" && !builtInPlugins[one.Name] &&
			(!ok || !at.implements(found)) {
			return fmt.Errorf("%s: there is no plugin %q", at.name, one.Name)
		}
		if builtInPlugins[one.Name] && one.Name != "DefaultPreemption" {
			return fmt.Errorf("%s: %s cannot be turned off", at.name, one.Name)
		}
		at.disable(p, one.Name)
	}
	twice := map[string]bool{}
	for _, one := range at.set.Enabled {
		if twice[one.Name] {
			return fmt.Errorf("%s: %q is there twice", at.name, one.Name)
		}
		twice[one.Name] = true
		if builtInPlugins[one.Name] && at.name == "multiPoint" {
			p.Preempt.IsDisabled = p.Preempt.IsDisabled && one.Name != "DefaultPreemption"
			continue
		}
		found, ok := plugin.ByName(one.Name)
		if !ok || !at.implements(found) {
			return fmt.Errorf("%s: there is no plugin %q", at.name, one.Name)
		}
		weight := int64(0)
		if one.Weight != nil {
			weight = int64(*one.Weight)
		}
		if weight < 0 || weight > 100 {
			return fmt.Errorf("%s: the weight of %s must be from 1 to 100", at.name, one.Name)
		}
		at.enable(p, found, weight)
	}
	return nil
}

// setArguments reads a plugin's arguments.
func (p *Profile) setArguments(name string, raw runtime.RawExtension) error {
	switch name {
	case "DefaultPreemption":
		return applyArguments(name, raw, p.setPreemption)
	case "InterPodAffinity":
		return applyArguments(name, raw, p.setPodAffinity)
	case "NodeAffinity":
		return applyArguments(name, raw, func(a *configv1.NodeAffinityArgs) error {
			return (*arguments)(p.Args).addAffinity(a.AddedAffinity)
		})
	case "NodeResourcesFit":
		return applyArguments(name, raw, (*arguments)(p.Args).setFit)
	case "NodeResourcesBalancedAllocation":
		return applyArguments(name, raw, p.setBalancedAllocation)
	case "PodTopologySpread":
		return applyArguments(name, raw, (*arguments)(p.Args).setSpread)
	case "VolumeBinding":
		return applyArguments(name, raw, p.setVolumeBinding)
	case "DynamicResources":
		return applyArguments(name, raw, p.setDevices)
	default:
		return errors.New("there is no plugin of this name that takes arguments")
	}
}

// applyArguments decodes the arguments of a plugin and applies them.
func applyArguments[T any](plugin string, raw runtime.RawExtension, set func(*T) error) error {
	a := new(T)
	if len(raw.Raw) == 0 {
		return set(a)
	}
	if err := yaml.UnmarshalStrict(raw.Raw, a); err != nil {
		return err
	}
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal(raw.Raw, &meta); err != nil {
		return err
	}
	if want := plugin + "Args"; meta.Kind != "" && meta.Kind != want {
		return fmt.Errorf("args.kind must be %s", want)
	}
	if meta.APIVersion != "" && meta.APIVersion != configv1.SchemeGroupVersion.String() {
		return fmt.Errorf("args.apiVersion must be %s", configv1.SchemeGroupVersion)
	}
	return set(a)
}

func (p *Profile) setPodAffinity(a *configv1.InterPodAffinityArgs) error {
	if w := a.HardPodAffinityWeight; w != nil {
		if *w < 0 || *w > 100 {
			return errors.New("hardPodAffinityWeight must be from 0 to 100")
		}
		p.Args.HardAffinityWeight = int64(*w)
	}
	p.Args.IgnoreExistingPreferred = a.IgnorePreferredTermsOfExistingPods
	return nil
}

func (p *Profile) setBalancedAllocation(a *configv1.NodeResourcesBalancedAllocationArgs) (err error) {
	if len(a.Resources) > 0 {
		p.Args.BalancedResources, err = weightedResources(a.Resources, 1)
	}
	return err
}

func (p *Profile) setVolumeBinding(a *configv1.VolumeBindingArgs) error {
	if len(a.Shape) > 0 {
		shape, err := shapePoints(a.Shape)
		if err != nil {
			return err
		}
		p.Args.VolumeShape = shape
	}
	if n := a.BindTimeoutSeconds; n != nil {
		if *n < 0 {
			return errors.New("bindTimeoutSeconds must not be negative")
		}
		p.BindTimeout = time.Duration(*n) * time.Second
	}
	return nil
}

func (p *Profile) setDevices(a *configv1.DynamicResourcesArgs) error {
	if a.BindingTimeout != nil {
		return errors.New(
			"bindingTimeout: devices with binding conditions are not allocated, so there is nothing to wait for")
	}
	if t := a.FilterTimeout; t != nil {
		if t.Duration < 0 {
			return errors.New("filterTimeout must not be negative")
		}
		p.Args.DeviceTimeout = &t.Duration
	}
	return nil
}

func (p *Profile) setPreemption(a *configv1.DefaultPreemptionArgs) error {
	if n := a.MinCandidateNodesPercentage; n != nil {
		if *n < 0 || *n > 100 {
			return errors.New("minCandidateNodesPercentage must be from 0 to 100")
		}
		p.Preempt.Percent = int(*n)
	}
	if n := a.MinCandidateNodesAbsolute; n != nil {
		if *n < 0 {
			return errors.New("minCandidateNodesAbsolute must not be negative")
		}
		p.Preempt.MinNodes = int(*n)
	}
	if p.Preempt.Percent == 0 && p.Preempt.MinNodes == 0 {
		return errors.New("minCandidateNodesPercentage and minCandidateNodesAbsolute cannot both be 0")
	}
	return nil
}
