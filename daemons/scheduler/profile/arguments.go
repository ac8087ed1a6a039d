package profile

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"clusterctl/daemons/scheduler/plugin"
)

// arguments is plugin.Args while a configuration is read.
type arguments plugin.Args

func (a *arguments) addAffinity(added *corev1.NodeAffinity) error {
	if added == nil {
		return nil
	}
	var err error
	if required := added.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		if a.AddedAffinity, err = nodeaffinity.NewNodeSelector(required); err != nil {
			return fmt.Errorf("addedAffinity: %w", err)
		}
	}
	if preferred := added.PreferredDuringSchedulingIgnoredDuringExecution; len(preferred) > 0 {
		if a.AddedPreferred, err = nodeaffinity.NewPreferredSchedulingTerms(preferred); err != nil {
			return fmt.Errorf("addedAffinity: %w", err)
		}
	}
	return nil
}

func (a *arguments) setFit(c *configv1.NodeResourcesFitArgs) error {
	a.IgnoredResources, a.IgnoredGroups = map[corev1.ResourceName]bool{}, map[string]bool{}
	for _, name := range c.IgnoredResources {
		if !strings.Contains(name, "/") {
			return fmt.Errorf("ignoredResources: %q is not an extended resource", name)
		}
		a.IgnoredResources[corev1.ResourceName(name)] = true
	}
	for _, group := range c.IgnoredResourceGroups {
		if strings.Contains(group, "/") {
			return fmt.Errorf("ignoredResourceGroups: %q contains a slash", group)
		}
		a.IgnoredGroups[group] = true
	}
	s := c.ScoringStrategy
	if s == nil {
		return nil
	}
	if s.RequestedToCapacityRatio != nil && s.Type != configv1.RequestedToCapacityRatio {
		return errors.New("scoringStrategy.requestedToCapacityRatio needs the type RequestedToCapacityRatio")
	}
	switch s.Type {
	case configv1.LeastAllocated:
		a.Fit.Kind = plugin.LeastAllocated
	case configv1.MostAllocated:
		a.Fit.Kind = plugin.MostAllocated
	case configv1.RequestedToCapacityRatio:
		a.Fit.Kind = plugin.RequestedToCapacityRatio
		if s.RequestedToCapacityRatio == nil {
			return errors.New("scoringStrategy.requestedToCapacityRatio.shape must have a point")
		}
		var err error
		if a.Fit.Shape, err = shapePoints(s.RequestedToCapacityRatio.Shape); err != nil {
			return fmt.Errorf("scoringStrategy.requestedToCapacityRatio.%w", err)
		}
	default:
		return fmt.Errorf(
			"scoringStrategy.type: %q is none of LeastAllocated, MostAllocated and RequestedToCapacityRatio", s.Type)
	}
	if len(s.Resources) == 0 {
		return nil
	}
	var err error
	a.Fit.Resources, err = weightedResources(s.Resources, 100)
	return err
}

// shapePoints converts the shape of a score.
func shapePoints(shape []configv1.UtilizationShapePoint) ([]plugin.Point, error) {
	if len(shape) == 0 {
		return nil, errors.New("shape must have a point")
	}
	var out []plugin.Point
	last := int64(-1)
	for _, p := range shape {
		at := plugin.Point{
			Utilization: int64(p.Utilization),
			Score:       int64(p.Score) * plugin.MaxScore / configv1MaxScore,
		}
		if at.Utilization <= last || at.Utilization > 100 || p.Score < 0 || p.Score > configv1MaxScore {
			return nil, errors.New("shape: utilizations must grow from 0 to 100, scores be from 0 to 10")
		}
		last = at.Utilization
		out = append(out, at)
	}
	return out, nil
}

// configv1MaxScore is the highest score of a shape's point in the file.
const configv1MaxScore = 10

func weightedResources(list []configv1.ResourceSpec, maximum int64) ([]plugin.Weighted, error) {
	out := make([]plugin.Weighted, 0, len(list))
	seen := map[string]bool{}
	for _, r := range list {
		weight := r.Weight
		if weight == 0 {
			weight = 1
		}
		if weight < 0 || weight > maximum {
			return nil, fmt.Errorf("the weight of resource %q must be from 1 to %d", r.Name, maximum)
		}
		if seen[r.Name] {
			return nil, fmt.Errorf("resource %q is there twice", r.Name)
		}
		seen[r.Name] = true
		out = append(out, plugin.Weighted{Name: corev1.ResourceName(r.Name), Weight: weight})
	}
	return out, nil
}

func (a *arguments) setSpread(c *configv1.PodTopologySpreadArgs) error {
	switch c.DefaultingType {
	case configv1.SystemDefaulting, "":
		if len(c.DefaultConstraints) > 0 {
			return errors.New("defaultConstraints need defaultingType: List")
		}
		return nil
	case configv1.ListDefaulting:
	default:
		return fmt.Errorf("defaultingType: %q is neither System nor List", c.DefaultingType)
	}
	a.DefaultConstraints, a.HasConfiguredConstraints = nil, true
	seen := map[plugin.DefaultConstraint]bool{}
	for i := range c.DefaultConstraints {
		one, err := defaultConstraint(&c.DefaultConstraints[i])
		if err != nil {
			return fmt.Errorf("defaultConstraints[%d]%w", i, err)
		}
		if key := (plugin.DefaultConstraint{Key: one.Key, Required: one.Required}); seen[key] {
			return fmt.Errorf("defaultConstraints[%d]: %q is there twice with the same whenUnsatisfiable", i, one.Key)
		} else {
			seen[key] = true
		}
		a.DefaultConstraints = append(a.DefaultConstraints, one)
	}
	return nil
}

func defaultConstraint(d *corev1.TopologySpreadConstraint) (plugin.DefaultConstraint, error) {
	one := plugin.DefaultConstraint{
		Key: d.TopologyKey, MaxSkew: int(d.MaxSkew), MinDomains: 1,
		Required: d.WhenUnsatisfiable == corev1.DoNotSchedule, HonorNodes: true,
	}
	switch {
	case d.LabelSelector != nil:
		return one, errors.New(
			".labelSelector cannot be set: the pods that are counted follow from services and controllers")
	case len(d.MatchLabelKeys) > 0:
		return one, errors.New(
			".matchLabelKeys cannot be set: the pods that are counted follow from services and controllers")
	case d.MaxSkew <= 0:
		return one, errors.New(".maxSkew must be greater than 0")
	case d.TopologyKey == "":
		return one, errors.New(".topologyKey must not be empty")
	case !one.Required && d.WhenUnsatisfiable != corev1.ScheduleAnyway:
		return one, errors.New(".whenUnsatisfiable must be DoNotSchedule or ScheduleAnyway")
	case d.MinDomains != nil && (*d.MinDomains <= 0 || !one.Required):
		return one, errors.New(".minDomains must be greater than 0, and needs DoNotSchedule")
	}
	if d.MinDomains != nil {
		one.MinDomains = int(*d.MinDomains)
	}
	for _, policy := range []struct {
		name string
		of   *corev1.NodeInclusionPolicy
		into *bool
	}{{"nodeAffinityPolicy", d.NodeAffinityPolicy, &one.HonorNodes},
		{"nodeTaintsPolicy", d.NodeTaintsPolicy, &one.HonorTaint}} {
		if policy.of == nil {
			continue
		}
		if *policy.of != corev1.NodeInclusionPolicyHonor && *policy.of != corev1.NodeInclusionPolicyIgnore {
			return one, fmt.Errorf(".%s must be Honor or Ignore", policy.name)
		}
		*policy.into = *policy.of == corev1.NodeInclusionPolicyHonor
	}
	return one, nil
}
