// Package gitsource defines the custom resource GitSource: a folder of a Git repository, or of an artifact in a
// registry, or a chart of a Helm repository, whose objects the cluster follows. The configuration language writes such
// resources, and the GitOps controller reconciles them.
package gitsource

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names of the resource.
const (
	Group    = "gitops.clusterctl.local"
	Version  = "v1"
	Kind     = "GitSource"
	Resource = "gitsources"
	// APIVersion is the apiVersion of its objects.
	APIVersion = Group + "/" + Version
)

// Names of what the controller uses in the cluster.
const (
	// Namespace is the namespace of sources that belong to the cluster itself.
	Namespace = metav1.NamespaceSystem
	// Account is the service account of sources in Namespace that name no account. It may do everything.
	Account = "gitops"
	// DefaultAccount is the service account of sources in other namespaces that name no account.
	DefaultAccount = "default"
	// User is the controller's user, and the name of its role.
	User = "system:gitops-controller"
	// Lease is the name of the controller's lease in kube-system.
	Lease = "gitops-controller"
	// Manager is the field manager of the objects that the controller applies.
	Manager = "clusterctl-gitops"
	// ReceiverService is the name of the service in kube-system that leads to the controller's port for webhooks.
	ReceiverService = "gitops-receiver"
	// Finalizer keeps a deleted source until its objects are deleted.
	Finalizer = Group + "/prune"
)

// Annotations of sources.
const (
	// SyncAnnotation requests a reconciliation. Each new value requests one.
	SyncAnnotation = Group + "/sync"
)

// Annotations of objects in a repository.
const (
	// SourceAnnotation names the source that an object belongs to, as NAMESPACE/NAME. The controller sets it.
	SourceAnnotation = Group + "/source"
	// WaveAnnotation is a whole number. Objects of a lower number must be healthy before those of a higher one are
	// applied. Without it the number is 0.
	WaveAnnotation = Group + "/wave"
	// DriftAnnotation is an object's own drift policy: DriftRevert, DriftReport or DriftIgnore.
	DriftAnnotation = Group + "/drift"
	// PruneAnnotation with the value Disabled keeps an object that is no longer in the repository.
	PruneAnnotation = Group + "/prune"
	// AdoptAnnotation with the value Enabled lets the controller apply an object over one that another client created.
	AdoptAnnotation = Group + "/adopt"
	// RecreateAnnotation with the value Enabled lets the controller delete and create an object whose change the API
	// refuses because a field is immutable.
	RecreateAnnotation = Group + "/recreate"
)

// Values of annotations.
const (
	Enabled  = "enabled"
	Disabled = "disabled"
)

// Drift policies.
const (
	DriftRevert = "revert" // write the declared fields again
	DriftReport = "report" // leave the object as it is, and list it in the status
	DriftIgnore = "ignore" // create the object if it is missing, and never change it
)

// Renderers.
const (
	RendererAuto      = "auto" // by the files in the folder
	RendererYAML      = "yaml"
	RendererKustomize = "kustomize"
	RendererHelm      = "helm"
	RendererHCL       = "hcl" // the configuration language, without blocks of a cluster
)

// Renderers and drift policies of a source, in the order of the documentation.
var (
	Renderers = []string{RendererAuto, RendererYAML, RendererKustomize, RendererHelm, RendererHCL}
	Drifts    = []string{DriftRevert, DriftReport}
)

// Spec is what a source declares. At most one of Branch, Tag, Semver, Commit and Digest is set; without one, the
// server's default branch is followed, or the tag DefaultTag of a registry. A Helm repository has none of them.
type Spec struct {
	URL    string `json:"url"`
	Branch string `json:"branch,omitempty"`
	Tag    string `json:"tag,omitempty"`
	Semver string `json:"semver,omitempty"` // constraint on the versions that tags name
	Commit string `json:"commit,omitempty"`
	Digest string `json:"digest,omitempty"` // of a manifest in a registry
	Path   string `json:"path,omitempty"`   // folder in the repository; empty means its root

	Interval      *metav1.Duration `json:"interval,omitempty"`      // default DefaultInterval
	RetryInterval *metav1.Duration `json:"retryInterval,omitempty"` // first pause after a failure; default DefaultRetry
	// of fetching, and of health; default DefaultTimeout
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	Prune      *bool  `json:"prune,omitempty"` // default true
	AllowEmpty bool   `json:"allowEmpty,omitempty"`
	Drift      string `json:"drift,omitempty"` // default DriftRevert
	Recreate   bool   `json:"recreate,omitempty"`
	Suspend    bool   `json:"suspend,omitempty"`

	DependsOn      []Reference `json:"dependsOn,omitempty"`
	ServiceAccount string      `json:"serviceAccount,omitempty"`
	// name of the Secret with credentials, in the source's namespace
	Secret     string      `json:"secret,omitempty"`
	Proxy      string      `json:"proxy,omitempty"`
	Verify     *Verify     `json:"verify,omitempty"`
	Decryption *Decryption `json:"decryption,omitempty"`

	Renderer        string `json:"renderer,omitempty"`        // default RendererAuto
	TargetNamespace string `json:"targetNamespace,omitempty"` // namespace of objects that name none
	Helm            *Helm  `json:"helm,omitempty"`

	Receiver      *Receiver      `json:"receiver,omitempty"`
	Notifications []Notification `json:"notifications,omitempty"`
}

// Notification is where changes of the Ready condition are sent.
type Notification struct {
	Type string `json:"type"`
	// URL is that of a webhook, or of a server's API; default: the key url of the Secret, or the API of the source's
	// server.
	URL string `json:"url,omitempty"`
	// Secret is the name of a Secret in the source's namespace with the key token.
	Secret string `json:"secret"`
}

// Types of notifications.
const (
	NotifyWebhook = "webhook" // a request with JSON, and its HMAC in the header X-Signature
	NotifyGitHub  = "github"  // the status of the commit; also of the types below
	NotifyGitLab  = "gitlab"
	NotifyGitea   = "gitea"
)

// NotifyTypes are the types of notifications, in the order of the documentation.
var NotifyTypes = []string{NotifyWebhook, NotifyGitHub, NotifyGitLab, NotifyGitea}

// MaxNotifications is the maximum number of notifications of a source.
const MaxNotifications = 5

// Receiver lets a webhook of the repository's server request reconciliations.
type Receiver struct {
	Type string `json:"type"`
	// Secret is the name of a Secret in the source's namespace with the key token, which the server signs with.
	Secret string `json:"secret"`
	// Events are the events that request a reconciliation, as the server names them; default: pushes.
	Events []string `json:"events,omitempty"`
}

// Types of receivers.
const (
	ReceiverGitHub  = "github"
	ReceiverGitLab  = "gitlab"
	ReceiverGitea   = "gitea"
	ReceiverGeneric = "generic" // an HMAC of the body in the header X-Signature
)

// ReceiverTypes are the types of receivers, in the order of the documentation.
var ReceiverTypes = []string{ReceiverGitHub, ReceiverGitLab, ReceiverGitea, ReceiverGeneric}

// EventsOrDefault returns the events that request a reconciliation. A generic receiver has none: it reacts to each
// request.
func (r *Receiver) EventsOrDefault() []string {
	switch {
	case len(r.Events) > 0:
		return r.Events
	case r.Type == ReceiverGitLab:
		return []string{"Push Hook", "Tag Push Hook"}
	case r.Type == ReceiverGeneric:
		return nil
	}
	return []string{"push"}
}

// Verify requires a signature. Nothing of a revision without a valid one is applied.
type Verify struct {
	Mode string `json:"mode,omitempty"` // default VerifyHead
	// Secret is the name of a Secret in the source's namespace with the keys of people who may sign.
	Secret string `json:"secret"`
}

// Modes of Verify.
const (
	VerifyHead = "head" // the selected commit is signed
	VerifyTag  = "tag"  // the selected tag is annotated and signed
)

// VerifyModes are the modes of Verify, in the order of the documentation.
var VerifyModes = []string{VerifyHead, VerifyTag}

// Decryption decrypts files that SOPS has encrypted for age recipients.
type Decryption struct {
	// Secret is the name of a Secret in the source's namespace with private keys of age.
	Secret string `json:"secret"`
}

// Reference names another source.
type Reference struct {
	Namespace string `json:"namespace,omitempty"` // default: the namespace of the source
	Name      string `json:"name"`
}

// Helm holds what the Helm renderer reads besides the chart.
type Helm struct {
	Chart string `json:"chart,omitempty"` // name of a chart in the Helm repository at Spec.URL
	// constraint on the versions of Chart; default: the latest release
	Version    string         `json:"version,omitempty"`
	Release    string         `json:"release,omitempty"` // default: the source's name
	Values     map[string]any `json:"values,omitempty"`  // take precedence over ValuesFrom
	ValuesFrom []ValuesFrom   `json:"valuesFrom,omitempty"`
	SkipCRDs   bool           `json:"skipCRDs,omitempty"`
}

// ValuesFrom is a ConfigMap or Secret in the source's namespace with a file of values.
type ValuesFrom struct {
	Kind     string `json:"kind"` // ConfigMap or Secret
	Name     string `json:"name"`
	Key      string `json:"key,omitempty"` // default DefaultValuesKey
	Optional bool   `json:"optional,omitempty"`
}

// DefaultTag is the tag of a registry that is followed without Tag, Semver and Digest.
const DefaultTag = "latest"

// DefaultValuesKey is the key of values in a ConfigMap or Secret.
const DefaultValuesKey = "values.yaml"

// Status is what the controller reports of a source.
type Status struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`

	RenderedRevision string `json:"renderedRevision,omitempty"` // last revision that was fetched and rendered
	AppliedRevision  string `json:"appliedRevision,omitempty"`  // last revision whose objects were all applied
	AppliedSpec      string `json:"appliedSpec,omitempty"`      // digest of what Spec said of the objects at that time
	HandledSync      string `json:"handledSync,omitempty"`      // last value of SyncAnnotation that was carried out

	Objects   int      `json:"objects,omitempty"`   // number of rendered objects
	Inventory []string `json:"inventory,omitempty"` // objects that were applied and not deleted since
	Pruning   []string `json:"pruning,omitempty"`   // entries of the inventory that are no longer rendered
	Pruned    []string `json:"pruned,omitempty"`    // objects of the last deletion
	Drifted   []string `json:"drifted,omitempty"`   // objects that differ and are not reverted
	Failed    []string `json:"failed,omitempty"`    // objects that could not be applied, each with its error
}

// Types of conditions. Their meaning follows kstatus: a source is up to date if Ready is True and the generation was
// observed. Reconciling and Stalled are present only while they are True.
const (
	ConditionReady       = "Ready"
	ConditionReconciling = "Reconciling"
	ConditionStalled     = "Stalled"
	// ConditionReceiving exists while the source has a receiver. It is True if webhooks are accepted.
	ConditionReceiving = "Receiving"
)
