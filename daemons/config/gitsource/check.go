package gitsource

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Defaults and bounds of times.
const (
	DefaultInterval = 5 * time.Minute
	DefaultRetry    = 15 * time.Second
	DefaultTimeout  = 5 * time.Minute
	MinInterval     = 10 * time.Second
	MinRetry        = time.Second
	MinTimeout      = time.Second
	MaxTime         = 24 * time.Hour
)

// Bounds of texts, in characters, and of lists. The definition has the same ones.
const (
	maxURL        = 2048 // also of a proxy
	maxRef        = 255
	maxPath       = 1024
	maxKey        = 253
	maxValuesFrom = 20
	maxChart      = 253
	maxEvents     = 20
	maxEvent      = 63
)

// Problem is a mistake in a spec. Field is its JSON name.
type Problem struct{ Field, Text string }

// Error returns the field and the text.
func (p Problem) Error() string { return "spec." + p.Field + ": " + p.Text }

// ociPart matches a part of the name of a repository in a registry.
const ociPart = `[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*`

var (
	commitPattern  = regexp.MustCompile(`^[0-9a-f]{40}$`)
	scpPattern     = regexp.MustCompile(`^(?:[A-Za-z0-9._-]+@)?[A-Za-z0-9.-]+:[^/].*$`)
	refPattern     = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._/+@-]*$`)
	digestPattern  = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	chartPattern   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	ociTagPattern  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
	ociPattern     = regexp.MustCompile(`^` + ociPart + `(?:/` + ociPart + `)*$`)
	releasePattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)
)

// Schemes are the schemes of URLs that can be fetched.
var Schemes = []string{"https", "ssh", "oci", "file", "http"}

// Problems returns the mistakes in a spec.
func (s *Spec) Problems() (list []Problem) {
	add := func(field, format string, args ...any) {
		list = append(list, Problem{field, fmt.Sprintf(format, args...)})
	}
	if text := urlProblem(s.URL); text != "" {
		add("url", "%s", text)
	}
	chosen := []string{}
	for _, r := range []struct{ field, value string }{
		{"branch", s.Branch}, {"tag", s.Tag}, {"semver", s.Semver}, {"commit", s.Commit}, {"digest", s.Digest},
	} {
		if r.value == "" {
			continue
		}
		chosen = append(chosen, r.field)
		if (r.field == "branch" || r.field == "tag") &&
			(!refPattern.MatchString(r.value) || strings.Contains(r.value, "..") ||
				strings.HasSuffix(r.value, ".lock")) {
			add(r.field, "%q is not the name of a %s", r.value, r.field)
		}
	}
	if len(chosen) > 1 {
		add(chosen[1], "%s and %s are both set; set one of them", chosen[0], chosen[1])
	}
	if s.Commit != "" && !commitPattern.MatchString(s.Commit) {
		add("commit", "%q is not a full commit ID of 40 hexadecimal digits", s.Commit)
	}
	if s.Semver != "" {
		if _, err := ParseConstraint(s.Semver); err != nil {
			add("semver", "%v", err)
		}
	}
	if clean := path.Clean(s.Path); s.Path != "" &&
		(path.IsAbs(s.Path) || clean == ".." || strings.HasPrefix(clean, "../")) {
		add("path", "%q leads out of the repository", s.Path)
	}
	for _, d := range []struct {
		field string
		value *metav1.Duration
		min   time.Duration
	}{{"interval", s.Interval, MinInterval}, {"retryInterval", s.RetryInterval, MinRetry},
		{"timeout", s.Timeout, MinTimeout}} {
		if d.value != nil && (d.value.Duration < d.min || d.value.Duration > MaxTime) {
			add(d.field, "%s is not between %s and %s", d.value.Duration, d.min, MaxTime)
		}
	}
	if s.Drift != "" && !slices.Contains(Drifts, s.Drift) {
		add("drift", "%q is neither %q nor %q", s.Drift, DriftRevert, DriftReport)
	}
	for _, f := range []struct {
		field, value string
		max          int
	}{{"url", s.URL, maxURL}, {"branch", s.Branch, maxRef}, {"tag", s.Tag, maxRef}, {"semver", s.Semver, maxRef},
		{"path", s.Path, maxPath}, {"proxy", s.Proxy, maxURL}} {
		if utf8.RuneCountInString(f.value) > f.max {
			add(f.field, "it has more than %d characters", f.max)
		}
	}
	list = append(list, s.nameProblems()...)
	list = append(list, s.kindProblems()...)
	list = append(list, s.receiverProblems()...)
	list = append(list, s.notificationProblems()...)
	return append(list, s.secretProblems()...)
}

// kindProblems returns the fields that the kind of the source does not read.
func (s *Spec) kindProblems() (list []Problem) {
	add := func(field, format string, args ...any) {
		list = append(list, Problem{field, fmt.Sprintf(format, args...)})
	}
	refuse := func(reason string, fields ...string) {
		for _, f := range fields {
			if value, _ := map[string]string{"branch": s.Branch, "tag": s.Tag, "semver": s.Semver, "commit": s.Commit,
				"path": s.Path, "digest": s.Digest}[f]; value != "" {
				add(f, "%s", reason)
			}
		}
		if s.Verify != nil {
			add("verify", "%s", reason)
		}
	}
	if s.Digest != "" && !digestPattern.MatchString(s.Digest) {
		add("digest", "%q is not a digest: sha256: and 64 hexadecimal digits", s.Digest)
	}
	h := s.Helm
	if h == nil {
		h = &Helm{}
	}
	switch {
	case h.Chart == "" && h.Version != "":
		add("helm.version", "it needs helm.chart; to select a version of a repository, set semver")
	case h.Chart == "":
	case len(h.Chart) > maxChart || !chartPattern.MatchString(h.Chart):
		add("helm.chart", "it is not the name of a chart of at most %d characters", maxChart)
	case !s.IsHelmRepository():
		add("helm.chart", "only Helm repositories have it, whose URL begins with https; with oci, the URL names "+
			"the chart")
	}
	if h.Version != "" {
		if _, err := ParseConstraint(h.Version); err != nil {
			add("helm.version", "%v", err)
		}
		if utf8.RuneCountInString(h.Version) > maxRef {
			add("helm.version", "it has more than %d characters", maxRef)
		}
	}
	switch {
	case s.IsHelmRepository():
		refuse("a Helm repository has charts only; see helm.version", "branch", "tag", "semver", "commit", "digest",
			"path")
	case s.IsOCI():
		if s.Tag != "" && !ociTagPattern.MatchString(s.Tag) {
			add("tag", "%q is not a tag of a registry", s.Tag)
		}
		refuse("a registry has tags and digests only, and no signatures of Git", "branch", "commit")
	case s.Digest != "":
		add("digest", "only registries have it, whose URL begins with oci; set commit")
	}
	return list
}

// secretProblems returns the mistakes in the settings of signatures and encrypted files.
func (s *Spec) secretProblems() (list []Problem) {
	add := func(field, format string, args ...any) {
		list = append(list, Problem{field, fmt.Sprintf(format, args...)})
	}
	isName := func(name string) bool { return len(validation.IsDNS1123Subdomain(name)) == 0 }
	if v := s.Verify; v != nil {
		switch {
		case v.Mode != "" && !slices.Contains(VerifyModes, v.Mode):
			add("verify.mode", "%q is neither %q nor %q", v.Mode, VerifyHead, VerifyTag)
		case s.IsFolder():
			add("verify", "a folder of the machine has no signatures")
		case v.Mode == VerifyTag && s.Tag == "" && s.Semver == "":
			add("verify.mode", "signed tags need tag or semver; to verify a commit, use %q", VerifyHead)
		}
		if !isName(v.Secret) {
			add("verify.secret", "%q is not the name of an object", v.Secret)
		}
	}
	if d := s.Decryption; d != nil && !isName(d.Secret) {
		add("decryption.secret", "%q is not the name of an object", d.Secret)
	}
	return list
}

// receiverProblems returns the mistakes in the settings of the receiver.
func (s *Spec) receiverProblems() (list []Problem) {
	r := s.Receiver
	if r == nil {
		return nil
	}
	add := func(field, format string, args ...any) {
		list = append(list, Problem{field, fmt.Sprintf(format, args...)})
	}
	if !slices.Contains(ReceiverTypes, r.Type) {
		add("receiver.type", "%q is not one of %s", r.Type, strings.Join(ReceiverTypes, ", "))
	}
	if len(validation.IsDNS1123Subdomain(r.Secret)) > 0 {
		add("receiver.secret", "%q is not the name of an object", r.Secret)
	}
	if len(r.Events) > maxEvents {
		add("receiver.events", "it has more than %d entries", maxEvents)
	}
	if len(r.Events) > 0 && r.Type == ReceiverGeneric {
		add("receiver.events", "requests of the type %q name no event", ReceiverGeneric)
	}
	for _, e := range r.Events {
		if e == "" || utf8.RuneCountInString(e) > maxEvent {
			add("receiver.events", "an event has 1 to %d characters", maxEvent)
		}
	}
	return list
}

// notificationProblems returns the mistakes in the settings of notifications.
func (s *Spec) notificationProblems() (list []Problem) {
	add := func(format string, args ...any) {
		list = append(list, Problem{"notifications", fmt.Sprintf(format, args...)})
	}
	if len(s.Notifications) > MaxNotifications {
		add("it has more than %d entries", MaxNotifications)
	}
	for i, n := range s.Notifications {
		if !slices.Contains(NotifyTypes, n.Type) {
			add("entry %d: the type %q is not one of %s", i, n.Type, strings.Join(NotifyTypes, ", "))
		}
		if len(validation.IsDNS1123Subdomain(n.Secret)) > 0 {
			add("entry %d: %q is not the name of an object", i, n.Secret)
		}
		if utf8.RuneCountInString(n.URL) > maxURL {
			add("entry %d: the URL has more than %d characters", i, maxURL)
		}
		if n.Type != NotifyWebhook && (s.IsFolder() || s.IsOCI() || s.IsHelmRepository()) {
			add("entry %d: only Git repositories have commits; use the type %q", i, NotifyWebhook)
		}
		if n.URL == "" {
			continue
		}
		switch u, err := url.Parse(n.URL); {
		case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
			add("entry %d: it is not a URL such as https://hooks.example/gitops", i)
		case u.User != nil:
			add("entry %d: the URL contains credentials, which every reader of the source can read", i)
		}
	}
	return list
}

// nameProblems returns the mistakes in names of other objects and in the renderer's settings.
func (s *Spec) nameProblems() (list []Problem) {
	add := func(field, format string, args ...any) {
		list = append(list, Problem{field, fmt.Sprintf(format, args...)})
	}
	if s.Renderer != "" && !slices.Contains(Renderers, s.Renderer) {
		add("renderer", "%q is not one of %s", s.Renderer, strings.Join(Renderers, ", "))
	}
	for _, n := range []struct{ field, value string }{{"serviceAccount", s.ServiceAccount}, {"secret", s.Secret}} {
		if n.value != "" && len(validation.IsDNS1123Subdomain(n.value)) > 0 {
			add(n.field, "%q is not the name of an object", n.value)
		}
	}
	if s.TargetNamespace != "" && len(validation.IsDNS1123Label(s.TargetNamespace)) > 0 {
		add("targetNamespace", "%q is not the name of a namespace", s.TargetNamespace)
	}
	if s.Proxy != "" {
		u, err := url.Parse(s.Proxy)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5" {
			add("proxy", "it is not a URL such as http://proxy.example:3128")
		} else if u.User != nil {
			add("proxy", "it contains credentials, which every reader of the source can read")
		}
	}
	for i, d := range s.DependsOn {
		if len(validation.IsDNS1123Subdomain(d.Name)) > 0 {
			add("dependsOn", "entry %d: %q is not the name of a source", i, d.Name)
		}
		if d.Namespace != "" && len(validation.IsDNS1123Label(d.Namespace)) > 0 {
			add("dependsOn", "entry %d: %q is not the name of a namespace", i, d.Namespace)
		}
	}
	if s.Helm == nil {
		return list
	}
	if s.Renderer != "" && s.Renderer != RendererAuto && s.Renderer != RendererHelm {
		add("helm", "the renderer %q does not read it", s.Renderer)
	}
	if r := s.Helm.Release; r != "" && (len(r) > 53 || !releasePattern.MatchString(r)) {
		add("helm.release", "%q is not the name of a release: at most 53 lower-case letters, digits and dashes", r)
	}
	if len(s.Helm.ValuesFrom) > maxValuesFrom {
		add("helm.valuesFrom", "it has more than %d entries", maxValuesFrom)
	}
	for i, v := range s.Helm.ValuesFrom {
		if utf8.RuneCountInString(v.Key) > maxKey {
			add("helm.valuesFrom", "entry %d: the key has more than %d characters", i, maxKey)
		}
		if v.Kind != "ConfigMap" && v.Kind != "Secret" {
			add("helm.valuesFrom", "entry %d: kind %q is neither ConfigMap nor Secret", i, v.Kind)
		}
		if len(validation.IsDNS1123Subdomain(v.Name)) > 0 {
			add("helm.valuesFrom", "entry %d: %q is not the name of an object", i, v.Name)
		}
	}
	return list
}

// urlProblem returns what is wrong with the URL of a repository, or "".
func urlProblem(text string) string {
	if text == "" {
		return "it is missing"
	}
	if IsSCP(text) {
		return ""
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "it is not a URL such as https://git.example/team/platform.git"
	case !slices.Contains(Schemes, u.Scheme):
		return fmt.Sprintf("the scheme %q is not one of %s", u.Scheme, strings.Join(Schemes, ", "))
	case u.Scheme == "file" && (u.Host != "" || !path.IsAbs(u.Path)):
		return "a folder of the machine is written as file:///srv/platform"
	case u.Scheme != "file" && (u.Host == "" || strings.Trim(u.Path, "/") == ""):
		return "it names no host or no repository"
	case u.RawQuery != "" || u.Fragment != "":
		return "it has a query or a fragment"
	case u.Scheme == "oci" && !ociPattern.MatchString(strings.TrimPrefix(u.Path, "/")):
		return "a repository of a registry is written as oci://registry.example/team/app, in lower case and without " +
			"a tag"
	}
	if _, hasPassword := u.User.Password(); hasPassword || u.User != nil && u.Scheme != "ssh" {
		return "it contains credentials, which every reader of the source can read; write them into a Secret"
	}
	return ""
}

// IsSCP reports whether a URL has the short form of ssh, such as git@git.example:team/platform.git.
func IsSCP(text string) bool { return !strings.Contains(text, "://") && scpPattern.MatchString(text) }

// IsFolder reports whether the source is a folder on the machine. Its content is read as it is, without Git.
func (s *Spec) IsFolder() bool { return strings.HasPrefix(s.URL, "file://") }

// IsOCI reports whether the source is an artifact in a registry.
func (s *Spec) IsOCI() bool { return strings.HasPrefix(s.URL, "oci://") }

// IsHelmRepository reports whether the source is a chart in a Helm repository.
func (s *Spec) IsHelmRepository() bool {
	return s.Helm != nil && s.Helm.Chart != "" &&
		(strings.HasPrefix(s.URL, "https://") || strings.HasPrefix(s.URL, "http://"))
}

// Prunes reports whether objects that are no longer rendered are deleted.
func (s *Spec) Prunes() bool { return s.Prune == nil || *s.Prune }

// DriftPolicy returns the drift policy.
func (s *Spec) DriftPolicy() string { return cmp.Or(s.Drift, DriftRevert) }

// VerifiesTag reports whether the selected tag must be signed.
func (s *Spec) VerifiesTag() bool { return s.Verify != nil && s.Verify.Mode == VerifyTag }

// Every returns the interval of reconciliations.
func (s *Spec) Every() time.Duration { return durationOr(s.Interval, DefaultInterval) }

// Retry returns the pause after a first failure.
func (s *Spec) Retry() time.Duration { return durationOr(s.RetryInterval, DefaultRetry) }

// Limit returns the time that fetching may take, and that objects may take to become healthy.
func (s *Spec) Limit() time.Duration { return durationOr(s.Timeout, DefaultTimeout) }

// AccountIn returns the service account of a source in a namespace.
func (s *Spec) AccountIn(namespace string) string {
	if namespace == Namespace {
		return cmp.Or(s.ServiceAccount, Account)
	}
	return cmp.Or(s.ServiceAccount, DefaultAccount)
}

func durationOr(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil || d.Duration == 0 {
		return otherwise
	}
	return d.Duration
}
