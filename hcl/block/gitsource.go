package block

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/hcl/config"
)

type gitSourceBlock struct {
	Name            string            `hcl:"name,optional" doc:"Name of the GitSource." default:"the block's label"`
	Namespace       string            `hcl:"namespace,optional" doc:"Namespace of the GitSource. Objects are applied with the rights of a service account of this namespace." default:"\"kube-system\""`
	URL             string            `hcl:"url" doc:"The Git repository: an https, http or ssh URL, or USER@HOST:PATH. A URL such as oci://registry.example/team/app is a repository of a registry. With chart in the helm block, an https URL is a Helm repository. A URL such as file:///srv/platform is a folder on the control-plane machines, which is read as it is."`
	Branch          string            `hcl:"branch,optional" doc:"Branch to follow." default:"the repository's default branch; the tag latest of a registry"`
	Tag             string            `hcl:"tag,optional" doc:"Tag to use instead of a branch."`
	Semver          string            `hcl:"semver,optional" doc:"Constraint on the versions that tags name, such as \"1.x\" or \">=1.2.0 <2.0.0\". The latest version that satisfies it is used."`
	Commit          string            `hcl:"commit,optional" doc:"Full ID of a commit to use instead of a branch."`
	Digest          string            `hcl:"digest,optional" doc:"Digest of a manifest in a registry, as sha256:…, to use instead of a tag."`
	Path            string            `hcl:"path,optional" doc:"Folder in the repository." default:"its root"`
	Interval        string            `hcl:"interval,optional" doc:"Interval of reconciliations, 10s to 24h." default:"\"5m\""`
	RetryInterval   string            `hcl:"retry_interval,optional" doc:"Pause after a first failure, from 1s. It doubles with each further failure." default:"\"15s\""`
	Timeout         string            `hcl:"timeout,optional" doc:"How long fetching may take, and how long objects may take to become healthy." default:"\"5m\""`
	Prune           *bool             `hcl:"prune,optional" doc:"Whether objects that are no longer in the folder are deleted, and all objects when the block is removed." default:"true"`
	AllowEmpty      bool              `hcl:"allow_empty,optional" doc:"Whether a folder without objects deletes all objects. Otherwise it is an error that deletes nothing." default:"false"`
	Drift           string            `hcl:"drift,optional" doc:"What happens to objects that another client has changed: revert writes the declared fields again, report lists the objects in the status." default:"\"revert\""`
	Recreate        bool              `hcl:"recreate,optional" doc:"Whether an object with a changed immutable field is deleted and created again." default:"false"`
	Suspend         bool              `hcl:"suspend,optional" doc:"Whether the source is left as it is." default:"false"`
	ServiceAccount  string            `hcl:"service_account,optional" doc:"Service account of the namespace that the controller acts as." default:"gitops in kube-system, which may do everything; default in other namespaces"`
	Secret          string            `hcl:"secret,optional" doc:"Secret of the namespace with credentials: username and password, or bearerToken, or identity and known_hosts for ssh; and ca.crt. For a registry it may be of type kubernetes.io/dockerconfigjson." default:"none"`
	Proxy           string            `hcl:"proxy,optional" doc:"URL of a proxy for the repository's server." default:"that of the system block"`
	Renderer        string            `hcl:"renderer,optional" doc:"How files become objects: yaml, kustomize, helm, hcl, or auto, which decides by the files of the folder." default:"\"auto\""`
	TargetNamespace string            `hcl:"target_namespace,optional" doc:"Namespace of objects that name none." default:"default for sources in kube-system; otherwise the namespace of the source"`
	Labels          map[string]string `hcl:"labels,optional" doc:"Labels of the GitSource."`
	Annotations     map[string]string `hcl:"annotations,optional" doc:"Annotations of the GitSource."`
	Verify          *gitVerifyBlock   `hcl:"verify,block" doc:"Signature that a revision needs. Nothing of a revision without a valid one is applied."`
	Decryption      *gitDecryptBlock  `hcl:"decryption,block" doc:"Decryption of files that SOPS has encrypted for age recipients."`
	Receiver        *gitReceiverBlock `hcl:"receiver,block" doc:"Webhook of the repository's server that requests reconciliations, at the path /hooks/NAMESPACE/NAME. See the gitops block of the cluster."`
	Notifications   []gitNotifyBlock  `hcl:"notification,block" doc:"Where changes of the condition Ready are sent. At most 5."`
	Helm            *gitHelmBlock     `hcl:"helm,block" doc:"Settings of the Helm renderer."`
	Lifecycle       *lifecycleBlock   `hcl:"lifecycle,block" doc:"Protection against removal, and fields that are not updated."`
}

type gitVerifyBlock struct {
	Mode   string `hcl:"mode,optional" doc:"What is signed: head, the commit, or tag, the annotated tag that tag or semver selects." default:"\"head\""`
	Secret string `hcl:"secret" doc:"Secret of the namespace with the public keys of people who may sign: *.asc and *.pgp for OpenPGP, *.pub and allowed_signers for ssh."`
}

type gitDecryptBlock struct {
	Secret string `hcl:"secret" doc:"Secret of the namespace with private keys of age. Its keys end with .agekey."`
}

type gitReceiverBlock struct {
	Type   string   `hcl:"type" doc:"Form of the requests: github, gitlab, gitea, or generic, whose header X-Signature has sha256= and the HMAC of the body."`
	Secret string   `hcl:"secret" doc:"Secret of the namespace with the key token, which the server signs with."`
	Events []string `hcl:"events,optional" doc:"Events that request a reconciliation, as the server names them in a header." default:"pushes"`
}

type gitNotifyBlock struct {
	Type   string `hcl:"type" doc:"What is sent: webhook, a request with JSON whose header X-Signature has sha256= and the HMAC of the body; or github, gitlab or gitea, the status of the commit."`
	URL    string `hcl:"url,optional" doc:"URL of the webhook, or of the API of the server." default:"the key url of the Secret; or the API of the server of the source"`
	Secret string `hcl:"secret" doc:"Secret of the namespace with the key token, and optionally ca.crt, and url for a webhook."`
}

type gitHelmBlock struct {
	Chart      string               `hcl:"chart,optional" doc:"Name of a chart in the Helm repository at url."`
	Version    string               `hcl:"version,optional" doc:"Constraint on the versions of the chart, such as \"1.x\"." default:"the latest release"`
	Release    string               `hcl:"release,optional" doc:"Name of the release." default:"the name of the GitSource"`
	Values     hcl.Expression       `hcl:"values,optional" doc:"Values, as { replicas = 2 }. They take precedence over those of values_from. Everybody who can read the GitSource can read them."`
	SkipCRDs   bool                 `hcl:"skip_crds,optional" doc:"Whether the definitions in the chart's folder crds are left out." default:"false"`
	ValuesFrom []gitValuesFromBlock `hcl:"values_from,block" doc:"A ConfigMap or Secret of the namespace with values. Later ones take precedence."`
}

type gitValuesFromBlock struct {
	Kind     string `hcl:"kind" doc:"ConfigMap or Secret."`
	Name     string `hcl:"name" doc:"Name of the object."`
	Key      string `hcl:"key,optional" doc:"Key of the values, which are YAML." default:"\"values.yaml\""`
	Optional bool   `hcl:"optional,optional" doc:"Whether the object or the key may be missing." default:"false"`
}

// gitSourceFields maps fields of a GitSource to the attributes and blocks that set them.
var gitSourceFields = map[string]string{"retryInterval": "retry_interval", "serviceAccount": "service_account",
	"targetNamespace": "target_namespace", "helm.release": "helm", "helm.chart": "helm", "helm.version": "helm",
	"helm.valuesFrom": "helm", "verify.mode": "verify", "verify.secret": "verify", "decryption.secret": "decryption",
	"receiver.type": "receiver", "receiver.secret": "receiver", "receiver.events": "receiver",
	"notifications": "notification"}

// gitSourceTypes are the types of blocks that declare GitSources.
var gitSourceTypes = []string{"git_source", "helm_release", "kustomization"}

// decodeGitSource decodes a git_source block.
func decodeGitSource(x *Context, b *hcl.Block, c *config.Cluster) (cty.Value, hcl.Diagnostics) {
	var raw gitSourceBlock
	if diags := x.decode(b.Body, x.Eval, &raw); diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	return x.addGitSource(b, c, raw, gitSourceAttribute)
}

// gitSourceAttribute returns the attribute or block of a git_source block that sets a field of a GitSource.
func gitSourceAttribute(field string) string { return orDefault(gitSourceFields[field], field) }

// addGitSource adds a GitSource, which is handled like every other object afterwards. nameOf returns the attribute of
// the block b that sets a field of a GitSource, or what an attribute of a git_source block sets.
func (x *Context) addGitSource(b *hcl.Block, c *config.Cluster, raw gitSourceBlock, nameOf func(string) string) (
	cty.Value, hcl.Diagnostics) {
	var diags hcl.Diagnostics
	wrong := func(name, summary, format string, args ...any) {
		diags = append(diags, newError(attributeRange(b, b.Body, nameOf(name)), summary, format, args...))
	}
	name, namespace := orDefault(raw.Name, x.defaultName(b.Labels[0])), orDefault(raw.Namespace, gitsource.Namespace)
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		diags = append(diags, newError(labelRange(b, "name"), "Invalid name",
			"%q is not the name of an object: it has lower-case letters, digits, dashes and dots.", name))
	}
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		wrong("namespace", "Invalid namespace",
			"%q is not the name of a namespace: it has lower-case letters, digits and dashes.", namespace)
	}
	spec := gitsource.Spec{URL: raw.URL, Branch: raw.Branch, Tag: raw.Tag, Semver: raw.Semver, Commit: raw.Commit,
		Digest: raw.Digest,
		Path:   raw.Path, Prune: raw.Prune, AllowEmpty: raw.AllowEmpty, Drift: raw.Drift, Recreate: raw.Recreate,
		Suspend: raw.Suspend, ServiceAccount: raw.ServiceAccount, Secret: raw.Secret, Proxy: raw.Proxy,
		Renderer: raw.Renderer, TargetNamespace: raw.TargetNamespace}
	for _, d := range []struct {
		name, text string
		into       **metav1.Duration
	}{{"interval", raw.Interval, &spec.Interval}, {"retry_interval", raw.RetryInterval, &spec.RetryInterval},
		{"timeout", raw.Timeout, &spec.Timeout}} {
		if d.text == "" {
			continue
		}
		value, err := time.ParseDuration(d.text)
		if err != nil {
			wrong(d.name, "Invalid duration", "%q is not a duration such as \"30s\" or \"5m\".", d.text)
			continue
		}
		*d.into = &metav1.Duration{Duration: value}
	}
	if v := raw.Verify; v != nil {
		spec.Verify = &gitsource.Verify{Mode: v.Mode, Secret: v.Secret}
	}
	if d := raw.Decryption; d != nil {
		spec.Decryption = &gitsource.Decryption{Secret: d.Secret}
	}
	if r := raw.Receiver; r != nil {
		spec.Receiver = &gitsource.Receiver{Type: r.Type, Secret: r.Secret, Events: r.Events}
	}
	for _, n := range raw.Notifications {
		spec.Notifications = append(spec.Notifications,
			gitsource.Notification{Type: n.Type, URL: n.URL, Secret: n.Secret})
	}
	more := raw.Helm.decode(x, &spec)
	diags = append(diags, more...)
	for _, p := range spec.Problems() {
		wrong(p.Field, "Invalid GitSource", "%s: %s.", nameOf(p.Field), p.Text)
	}
	if spec.IsFolder() && namespace != gitsource.Namespace {
		wrong("url", "Folder of a machine", "Only sources in %s can read folders of the control-plane machines.",
			gitsource.Namespace)
	}
	diags = append(diags, raw.Lifecycle.rejectIgnore("The fields of a GitSource are those of its block. To ignore "+
		"changes, declare it as object \""+gitsource.APIVersion+"\" \""+gitsource.Kind+"\".")...)
	address := x.fullAddress(b.Type + "." + b.Labels[0])
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	content, err := gitSourceObject(name, namespace, raw, spec)
	if err != nil {
		return cty.DynamicVal, append(diags, newError(b.DefRange.Ptr(), "Invalid GitSource", "%v.", err))
	}
	c.Objects = append(c.Objects, config.Object{Address: address, Block: address, Content: content,
		PreventDestroy: raw.Lifecycle.preventDestroy(), DependsOn: x.dependsOn, Source: sourceOf(b)})
	return cty.ObjectVal(map[string]cty.Value{
		"name": cty.StringVal(name), "namespace": cty.StringVal(namespace)}), diags
}

// decode adds the settings of Helm to a spec.
func (h *gitHelmBlock) decode(x *Context, spec *gitsource.Spec) (diags hcl.Diagnostics) {
	if h == nil {
		return nil
	}
	spec.Helm = &gitsource.Helm{Chart: h.Chart, Version: h.Version, Release: h.Release, SkipCRDs: h.SkipCRDs}
	for _, v := range h.ValuesFrom {
		spec.Helm.ValuesFrom = append(spec.Helm.ValuesFrom,
			gitsource.ValuesFrom{Kind: v.Kind, Name: v.Name, Key: v.Key, Optional: v.Optional})
	}
	if h.Values == nil {
		return nil
	}
	value, diags := h.Values.Value(x.Eval)
	if diags.HasErrors() || value.IsNull() {
		return diags
	}
	plain, err := ToPlain(x.unmark(value))
	if err != nil {
		return append(diags, newError(h.Values.Range().Ptr(), "Invalid value", "%v.", err))
	}
	values, ok := plain.(map[string]any)
	if !ok {
		return append(diags, newError(h.Values.Range().Ptr(), "Invalid values",
			"Values are an object, as { replicas = 2 }."))
	}
	spec.Helm.Values = values
	return diags
}

// gitSourceObject returns the content of a GitSource.
func gitSourceObject(name, namespace string, raw gitSourceBlock, spec gitsource.Spec) (map[string]any, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encode the GitSource: %w", err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("encode the GitSource: %w", err)
	}
	// Fields with a default are written too, so that changes of others are reverted. suspend is left to `gitops
	// suspend`.
	for _, field := range []string{"prune", "allowEmpty", "recreate"} {
		if fields[field] == nil {
			fields[field] = field == "prune"
		}
	}
	metadata := map[string]any{"name": name, "namespace": namespace}
	if len(raw.Labels) > 0 {
		metadata["labels"] = plainMap(raw.Labels)
	}
	if len(raw.Annotations) > 0 {
		metadata["annotations"] = plainMap(raw.Annotations)
	}
	return map[string]any{"apiVersion": gitsource.APIVersion, "kind": gitsource.Kind, "metadata": metadata,
		"spec": fields}, nil
}

// orderGitSources writes the GitSources that depends_on of another one names into its spec, so that the controller
// waits for them.
func orderGitSources(c *config.Cluster, at func(config.Source) *hcl.Range) (diags hcl.Diagnostics) {
	for _, o := range c.Objects {
		hasType := func(name string) bool { return strings.Contains(o.Block, name+".") }
		if !o.IsGitSource() || !slices.ContainsFunc(gitSourceTypes, hasType) {
			continue
		}
		spec, ok := o.Content["spec"].(map[string]any)
		if !ok {
			continue
		}
		var list []any
		for _, other := range c.Objects {
			if !other.IsGitSource() || other.Block == o.Block || !slices.ContainsFunc(o.DependsOn, func(d string) bool {
				return config.Includes(d, other.Block)
			}) {
				continue
			}
			metadata, _ := other.Content["metadata"].(map[string]any)
			list = append(list, map[string]any{"name": metadata["name"], "namespace": metadata["namespace"]})
		}
		if len(list) > 100 {
			diags = append(diags, newError(at(o.Source), "Too many dependencies",
				"%s depends on %d GitSources, and at most 100 are allowed.", o.Address, len(list)))
		}
		if len(list) > 0 {
			spec["dependsOn"] = list
		}
	}
	return diags
}
