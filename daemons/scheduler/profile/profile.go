// Package profile is how the scheduler places pods, as a KubeSchedulerConfiguration says: which plugins filter and
// score, with which arguments. What a configuration file says that is not carried out is refused here, by the scheduler
// when it starts and by clusterctl when it reads the file.
package profile

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/scheduler/plugin"
)

// Name is the schedulerName of the pods that the default profile places.
const Name = corev1.DefaultSchedulerName

// Lease is the name of the lease in kube-system whose holder is the active scheduler.
const Lease = "kube-scheduler"

// Profile is how the pods of one schedulerName are placed.
type Profile struct {
	Name    string
	Filters []*plugin.Plugin // in their order
	Scores  []Score
	Args    *plugin.Args
	Percent int // of nodes that are looked at until enough will do; 0: by the size of the cluster
	Preempt Preempting

	BindTimeout time.Duration // for the claims of a pod to be bound
}

// Score is a plugin that scores, and how much it counts.
type Score struct {
	*plugin.Plugin
	Weight int64
}

// Preempting is whether and on how many nodes room is looked for by removing others.
type Preempting struct {
	Off              bool
	Percent, AtLeast int // of the nodes
}

// Default has all plugins with their documented weights.
func Default() *Profile {
	p := &Profile{
		Name:        Name,
		Args:        plugin.DefaultArgs(),
		Preempt:     Preempting{Percent: 10, AtLeast: 100},
		BindTimeout: 10 * time.Minute,
	}
	for i := range plugin.All {
		one := &plugin.All[i]
		if one.Filter != nil || one.Everywhere != nil {
			p.Filters = append(p.Filters, one)
		}
		if one.Score != nil {
			p.Scores = append(p.Scores, Score{one, one.Weight})
		}
	}
	return p
}

// Settings are the profiles and the times that pods wait.
type Settings struct {
	Profiles                 []*Profile
	FirstBackoff, MaxBackoff time.Duration
}

// DefaultSettings are the documented defaults.
func DefaultSettings() Settings {
	return Settings{Profiles: []*Profile{Default()}, FirstBackoff: time.Second, MaxBackoff: 10 * time.Second}
}

// Profile returns the profile of pods with a schedulerName, nil when there is none.
func (s Settings) Profile(name string) *Profile {
	for _, p := range s.Profiles {
		if p.Name == name {
			return p
		}
	}
	return nil
}
