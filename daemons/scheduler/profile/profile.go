// Package profile reads a KubeSchedulerConfiguration: which plugins filter and score, with which arguments. It refuses
// settings that are not supported. The scheduler does so at its start, and clusterctl when it reads the file.
package profile

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/scheduler/plugin"
)

// Name is the schedulerName of the default profile.
const Name = corev1.DefaultSchedulerName

// Lease is the name of the lease in kube-system whose holder is the active scheduler.
const Lease = "kube-scheduler"

// Profile defines how the pods of one schedulerName are scheduled.
type Profile struct {
	Name    string
	Filters []*plugin.Plugin // in order
	Scores  []Score
	Args    *plugin.Args
	// percentage of nodes that must fit before the search ends; 0 means that it depends on the size of the cluster
	Percent int
	Preempt Preemption

	BindTimeout time.Duration // limit for binding the claims of a pod
}

// Score is a plugin that scores, with its weight.
type Score struct {
	*plugin.Plugin
	Weight int64
}

// Preemption defines whether preemption is used, and on how many nodes it is tried.
type Preemption struct {
	IsDisabled        bool
	Percent, MinNodes int // of the nodes
}

// Default returns the profile with all plugins and their documented weights.
func Default() *Profile {
	p := &Profile{
		Name:        Name,
		Args:        plugin.DefaultArgs(),
		Preempt:     Preemption{Percent: 10, MinNodes: 100},
		BindTimeout: 10 * time.Minute,
	}
	for i := range plugin.All {
		one := &plugin.All[i]
		if one.Filter != nil || one.RefuseAll != nil {
			p.Filters = append(p.Filters, one)
		}
		if one.Score != nil {
			p.Scores = append(p.Scores, Score{one, one.Weight})
		}
	}
	return p
}

// Settings holds the profiles and the back-off times of pods.
type Settings struct {
	Profiles                 []*Profile
	FirstBackoff, MaxBackoff time.Duration
}

// DefaultSettings returns the documented defaults.
func DefaultSettings() Settings {
	return Settings{Profiles: []*Profile{Default()}, FirstBackoff: time.Second, MaxBackoff: 10 * time.Second}
}

// Profile returns the profile for a schedulerName, or nil.
func (s Settings) Profile(name string) *Profile {
	for _, p := range s.Profiles {
		if p.Name == name {
			return p
		}
	}
	return nil
}
