package block

import (
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"clusterctl/hcl/config"
)

type helmReleaseBlock struct {
	Name            string               `hcl:"name,optional" doc:"Name of the release, and of its GitSource." default:"the block's label"`
	Repository      string               `hcl:"repository" doc:"URL of a Helm repository, which begins with https, or of a folder of charts in a registry, such as oci://registry.example/charts."`
	Chart           string               `hcl:"chart" doc:"Name of the chart."`
	Version         string               `hcl:"version,optional" doc:"Constraint on the versions of the chart, such as \"6.5.1\" or \"6.x\". The latest version that satisfies it is used." default:"the latest release"`
	Namespace       string               `hcl:"namespace,optional" doc:"Namespace of the release's objects." default:"default for sources in kube-system; otherwise source_namespace"`
	Values          hcl.Expression       `hcl:"values,optional" doc:"Values, as { replicas = 2 }. They take precedence over those of values_from. Everybody who can read the GitSource can read them."`
	SkipCRDs        bool                 `hcl:"skip_crds,optional" doc:"Whether the definitions in the chart's folder crds are left out." default:"false"`
	Interval        string               `hcl:"interval,optional" doc:"Interval of reconciliations, 10s to 24h." default:"\"5m\""`
	RetryInterval   string               `hcl:"retry_interval,optional" doc:"Pause after a first failure, from 1s. It doubles with each further failure." default:"\"15s\""`
	Timeout         string               `hcl:"timeout,optional" doc:"How long fetching may take, and how long objects may take to become healthy." default:"\"5m\""`
	Prune           *bool                `hcl:"prune,optional" doc:"Whether objects that the chart no longer has are deleted, and all objects when the block is removed." default:"true"`
	Drift           string               `hcl:"drift,optional" doc:"What happens to objects that another client has changed: revert writes the declared fields again, report lists the objects in the status." default:"\"revert\""`
	Recreate        bool                 `hcl:"recreate,optional" doc:"Whether an object with a changed immutable field is deleted and created again." default:"false"`
	Suspend         bool                 `hcl:"suspend,optional" doc:"Whether the release is left as it is." default:"false"`
	SourceNamespace string               `hcl:"source_namespace,optional" doc:"Namespace of the GitSource. The service account and Secrets are those of this namespace." default:"\"kube-system\""`
	ServiceAccount  string               `hcl:"service_account,optional" doc:"Service account that the controller acts as." default:"gitops in kube-system, which may do everything; default in other namespaces"`
	Secret          string               `hcl:"secret,optional" doc:"Secret with credentials of the repository, as for git_source." default:"none"`
	Proxy           string               `hcl:"proxy,optional" doc:"URL of a proxy for the repository's server." default:"that of the system block"`
	Labels          map[string]string    `hcl:"labels,optional" doc:"Labels of the GitSource."`
	Annotations     map[string]string    `hcl:"annotations,optional" doc:"Annotations of the GitSource."`
	ValuesFrom      []gitValuesFromBlock `hcl:"values_from,block" doc:"A ConfigMap or Secret of source_namespace with values. Later ones take precedence."`
	Notifications   []gitNotifyBlock     `hcl:"notification,block" doc:"Where changes of the condition Ready are sent. At most 5."`
	Lifecycle       *lifecycleBlock      `hcl:"lifecycle,block" doc:"Protection against removal, and fields that are not updated."`
}

// helmReleaseFields maps fields of a GitSource, and attributes of a git_source block, to those of a helm_release block.
var helmReleaseFields = map[string]string{"url": "repository", "semver": "version", "helm.chart": "chart",
	"helm.version": "version", "helm.release": "name", "helm.valuesFrom": "values_from",
	"targetNamespace": "namespace", "namespace": "source_namespace"}

// decodeHelmRelease decodes a helm_release block: a GitSource with a chart.
func decodeHelmRelease(x *Context, b *hcl.Block, c *config.Cluster) (cty.Value, hcl.Diagnostics) {
	var raw helmReleaseBlock
	if diags := x.decode(b.Body, x.Eval, &raw); diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	source := gitSourceBlock{Name: raw.Name, Namespace: raw.SourceNamespace, URL: raw.Repository,
		Interval: raw.Interval, RetryInterval: raw.RetryInterval, Timeout: raw.Timeout, Prune: raw.Prune,
		Drift: raw.Drift, Recreate: raw.Recreate, Suspend: raw.Suspend, ServiceAccount: raw.ServiceAccount,
		Secret: raw.Secret, Proxy: raw.Proxy, Renderer: "helm", TargetNamespace: raw.Namespace, Labels: raw.Labels,
		Annotations: raw.Annotations, Notifications: raw.Notifications, Lifecycle: raw.Lifecycle,
		Helm: &gitHelmBlock{Chart: raw.Chart, Version: raw.Version, Values: raw.Values, SkipCRDs: raw.SkipCRDs,
			ValuesFrom: raw.ValuesFrom}}
	switch {
	case strings.HasPrefix(raw.Repository, "oci://"):
		source.URL = strings.TrimSuffix(raw.Repository, "/") + "/" + raw.Chart
		source.Semver = orDefault(raw.Version, "*")
		source.Helm.Chart, source.Helm.Version = "", ""
	case !strings.HasPrefix(raw.Repository, "https://"):
		return cty.DynamicVal, hcl.Diagnostics{newError(attributeRange(b, b.Body, "repository"), "Invalid repository",
			"%q is the URL of neither a Helm repository, which begins with https://, nor of a registry, which begins "+
				"with oci://. A chart in a Git repository is a git_source block.", raw.Repository)}
	}
	return x.addGitSource(b, c, source, func(field string) string {
		return orDefault(helmReleaseFields[field], gitSourceAttribute(field))
	})
}

type kustomizationBlock struct {
	Name            string            `hcl:"name,optional" doc:"Name of the GitSource." default:"the block's label"`
	Namespace       string            `hcl:"namespace,optional" doc:"Namespace of the GitSource. Objects are applied with the rights of a service account of this namespace." default:"\"kube-system\""`
	URL             string            `hcl:"url" doc:"The Git repository, or an oci:// or file:// URL, as for git_source."`
	Branch          string            `hcl:"branch,optional" doc:"Branch to follow." default:"the repository's default branch; the tag latest of a registry"`
	Tag             string            `hcl:"tag,optional" doc:"Tag to use instead of a branch."`
	Semver          string            `hcl:"semver,optional" doc:"Constraint on the versions that tags name, such as \"1.x\" or \">=1.2.0 <2.0.0\". The latest version that satisfies it is used."`
	Commit          string            `hcl:"commit,optional" doc:"Full ID of a commit to use instead of a branch."`
	Digest          string            `hcl:"digest,optional" doc:"Digest of a manifest in a registry, as sha256:…, to use instead of a tag."`
	Path            string            `hcl:"path,optional" doc:"Folder with the file kustomization.yaml." default:"the root of the repository"`
	TargetNamespace string            `hcl:"target_namespace,optional" doc:"Namespace of objects that name none." default:"default for sources in kube-system; otherwise the namespace of the source"`
	Interval        string            `hcl:"interval,optional" doc:"Interval of reconciliations, 10s to 24h." default:"\"5m\""`
	RetryInterval   string            `hcl:"retry_interval,optional" doc:"Pause after a first failure, from 1s. It doubles with each further failure." default:"\"15s\""`
	Timeout         string            `hcl:"timeout,optional" doc:"How long fetching may take, and how long objects may take to become healthy." default:"\"5m\""`
	Prune           *bool             `hcl:"prune,optional" doc:"Whether objects that are no longer in the kustomization are deleted, and all objects when the block is removed." default:"true"`
	AllowEmpty      bool              `hcl:"allow_empty,optional" doc:"Whether a kustomization without objects deletes all objects. Otherwise it is an error that deletes nothing." default:"false"`
	Drift           string            `hcl:"drift,optional" doc:"What happens to objects that another client has changed: revert writes the declared fields again, report lists the objects in the status." default:"\"revert\""`
	Recreate        bool              `hcl:"recreate,optional" doc:"Whether an object with a changed immutable field is deleted and created again." default:"false"`
	Suspend         bool              `hcl:"suspend,optional" doc:"Whether the kustomization is left as it is." default:"false"`
	ServiceAccount  string            `hcl:"service_account,optional" doc:"Service account of the namespace that the controller acts as." default:"gitops in kube-system, which may do everything; default in other namespaces"`
	Secret          string            `hcl:"secret,optional" doc:"Secret of the namespace with credentials of the repository, as for git_source." default:"none"`
	Proxy           string            `hcl:"proxy,optional" doc:"URL of a proxy for the repository's server." default:"that of the system block"`
	Labels          map[string]string `hcl:"labels,optional" doc:"Labels of the GitSource."`
	Annotations     map[string]string `hcl:"annotations,optional" doc:"Annotations of the GitSource."`
	Verify          *gitVerifyBlock   `hcl:"verify,block" doc:"Signature that a revision needs. Nothing of a revision without a valid one is applied."`
	Decryption      *gitDecryptBlock  `hcl:"decryption,block" doc:"Decryption of files that SOPS has encrypted for age recipients."`
	Receiver        *gitReceiverBlock `hcl:"receiver,block" doc:"Webhook of the repository's server that requests reconciliations, at the path /hooks/NAMESPACE/NAME. See the gitops block of the cluster."`
	Notifications   []gitNotifyBlock  `hcl:"notification,block" doc:"Where changes of the condition Ready are sent. At most 5."`
	Lifecycle       *lifecycleBlock   `hcl:"lifecycle,block" doc:"Protection against removal, and fields that are not updated."`
}

// decodeKustomization decodes a kustomization block: a GitSource that kustomize renders.
func decodeKustomization(x *Context, b *hcl.Block, c *config.Cluster) (cty.Value, hcl.Diagnostics) {
	var raw kustomizationBlock
	if diags := x.decode(b.Body, x.Eval, &raw); diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	return x.addGitSource(b, c, gitSourceBlock{Name: raw.Name, Namespace: raw.Namespace, URL: raw.URL,
		Branch: raw.Branch, Tag: raw.Tag, Semver: raw.Semver, Commit: raw.Commit, Digest: raw.Digest, Path: raw.Path,
		TargetNamespace: raw.TargetNamespace, Interval: raw.Interval, RetryInterval: raw.RetryInterval,
		Timeout: raw.Timeout, Prune: raw.Prune, AllowEmpty: raw.AllowEmpty, Drift: raw.Drift, Recreate: raw.Recreate,
		Suspend: raw.Suspend, ServiceAccount: raw.ServiceAccount, Secret: raw.Secret, Proxy: raw.Proxy,
		Renderer: "kustomize", Labels: raw.Labels, Annotations: raw.Annotations, Verify: raw.Verify,
		Decryption: raw.Decryption, Receiver: raw.Receiver, Notifications: raw.Notifications,
		Lifecycle: raw.Lifecycle}, gitSourceAttribute)
}
