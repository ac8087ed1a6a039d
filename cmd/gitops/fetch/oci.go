package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

// Bounds of what a registry may send.
const (
	maxManifest = 4 << 20 // bytes of a manifest
	maxTagsPage = 4 << 20 // bytes of a page of tags
	maxTagPages = 100
	maxLayers   = 100
)

// Media types. See https://github.com/opencontainers/image-spec/blob/main/manifest.md.
const (
	mediaManifest  = "application/vnd.oci.image.manifest.v1+json"
	mediaIndex     = "application/vnd.oci.image.index.v1+json"
	mediaFluxLayer = "application/vnd.cncf.flux.content.v1.tar+gzip"
	mediaHelmLayer = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	mediaLayer     = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// layerTypes are the media types of layers that are read.
var layerTypes = []string{mediaFluxLayer, mediaHelmLayer, mediaLayer}

// descriptor refers to a blob.
type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
}

// manifest describes an artifact.
type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Layers        []descriptor `json:"layers"`
	Manifests     []struct{}   `json:"manifests"` // of an index
}

// fetchOCI returns the snapshot of an artifact in a registry.
func (f *Fetcher) fetchOCI(ctx context.Context, s *gitops.Source,
	credentials map[string][]byte) (gitops.Snapshot, error) {
	spec := &s.Spec
	r, err := newRegistry(dialerOf(s.Namespace), spec, credentials)
	if err != nil {
		return gitops.Snapshot{}, err
	}
	defer r.client.CloseIdleConnections()
	label, reference, err := r.selectReference(ctx, spec)
	if err != nil {
		return gitops.Snapshot{}, err
	}
	m, digest, err := r.manifest(ctx, reference)
	if err != nil {
		return gitops.Snapshot{}, fmt.Errorf("read the manifest of %s: %w", label, err)
	}
	layer, err := m.layer()
	if err != nil {
		return gitops.Snapshot{}, fmt.Errorf("the artifact %s: %w", label, err)
	}
	// The registry has just accepted these credentials, so that another source's copy may be used.
	return f.openArtifact(ctx, cacheKey(spec, credentials, digest), label+"@"+digest, func(dir string) error {
		return r.pull(ctx, layer, dir)
	})
}

// selectReference returns the tag or digest that a spec selects, and a label for people.
func (r *registry) selectReference(ctx context.Context, spec *gitsource.Spec) (label, reference string, err error) {
	switch {
	case spec.Digest != "":
		return "digest", spec.Digest, nil
	case spec.Tag != "":
		return spec.Tag, spec.Tag, nil
	case spec.Semver == "":
		return gitsource.DefaultTag, gitsource.DefaultTag, nil
	}
	constraint, err := gitsource.ParseConstraint(spec.Semver)
	if err != nil {
		return "", "", err
	}
	tags, err := r.tags(ctx)
	if err != nil {
		return "", "", fmt.Errorf("list the tags: %w", err)
	}
	versions := map[string]string{} // a tag cannot contain +, and Helm writes _ instead
	var list []string
	for _, tag := range tags {
		version := strings.Replace(tag, "_", "+", 1)
		versions[version] = tag
		list = append(list, version)
	}
	latest, ok := constraint.Latest(list)
	if !ok {
		return "", "", fmt.Errorf("none of the repository's %d tags is a version that satisfies %q", len(tags),
			spec.Semver)
	}
	return latest, versions[latest], nil
}

// tags returns the tags of the repository.
func (r *registry) tags(ctx context.Context) ([]string, error) {
	var all []string
	next := r.base("/tags/list", "n=1000")
	for range maxTagPages {
		answer, err := r.get(ctx, next, "application/json")
		if err != nil {
			return nil, err
		}
		text, err := readAll(answer.Body, maxTagsPage)
		_ = answer.Body.Close()
		if err != nil {
			return nil, err
		}
		var page struct {
			Tags []string `json:"tags"`
		}
		if err := json.Unmarshal(text, &page); err != nil {
			return nil, errors.New("the registry's answer is not a list of tags")
		}
		if all = append(all, page.Tags...); len(all) > maxRefs {
			return nil, fmt.Errorf("the repository has more than %d tags", maxRefs)
		}
		link := answer.Header.Get("Link")
		if link == "" {
			return all, nil
		}
		target, _, ok := strings.Cut(strings.TrimPrefix(link, "<"), ">")
		u, err := next.Parse(target)
		if !ok || err != nil || u.Host != next.Host || u.Scheme != next.Scheme {
			return nil, errors.New("the registry continues its list of tags elsewhere")
		}
		next = u
	}
	return nil, fmt.Errorf("the list of tags has more than %d pages", maxTagPages)
}

// readAll reads at most limit bytes. More is an error.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	return io.ReadAll(&limitedReader{r: r, left: limit, err: fmt.Errorf("the answer has more than %d bytes", limit)})
}

// manifest returns a manifest and its digest, which is compared with the one that was requested.
func (r *registry) manifest(ctx context.Context, reference string) (*manifest, string, error) {
	answer, err := r.get(ctx, r.base("/manifests/"+reference, ""), mediaManifest+", "+mediaIndex)
	if err != nil {
		return nil, "", err
	}
	defer answer.Body.Close()
	text, err := readAll(answer.Body, maxManifest)
	if err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(text)
	digest := digestPrefix + hex.EncodeToString(sum[:])
	stated := answer.Header.Get("Docker-Content-Digest")
	if isDigest(reference) && digest != reference || isDigest(stated) && digest != stated {
		return nil, "", fmt.Errorf("its content has the digest %s, which is another one", digest)
	}
	m := &manifest{}
	if err := json.Unmarshal(text, m); err != nil || m.SchemaVersion != 2 {
		return nil, "", errors.New("it is not a manifest of OCI")
	}
	return m, digest, nil
}

// layer returns the layer with the files.
func (m *manifest) layer() (descriptor, error) {
	switch {
	case len(m.Manifests) > 0 || m.MediaType == mediaIndex:
		return descriptor{}, errors.New("it is an index of several manifests; set digest to that of one of them")
	case m.MediaType != "" && m.MediaType != mediaManifest:
		return descriptor{}, fmt.Errorf("its manifest has the media type %.100q, which is not read", m.MediaType)
	case len(m.Layers) > maxLayers:
		return descriptor{}, fmt.Errorf("it has more than %d layers", maxLayers)
	}
	i := slices.IndexFunc(m.Layers, func(d descriptor) bool { return slices.Contains(layerTypes, d.MediaType) })
	if i < 0 {
		return descriptor{}, fmt.Errorf("none of its %d layers has one of the media types %s", len(m.Layers),
			strings.Join(layerTypes, ", "))
	}
	d := m.Layers[i]
	switch {
	case !isDigest(d.Digest):
		return descriptor{}, fmt.Errorf("its layer has the digest %.100q; only SHA-256 is supported", d.Digest)
	case d.Size < 0 || d.Size > maxArchiveBytes:
		return descriptor{}, fmt.Errorf("its layer has %d bytes, and at most %d are allowed", d.Size, maxArchiveBytes)
	}
	return d, nil
}

// pull downloads a layer, verifies it, and unpacks it into a directory.
func (r *registry) pull(ctx context.Context, layer descriptor, dir string) error {
	answer, err := r.get(ctx, r.base("/blobs/"+layer.Digest, ""), "")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	archive, err := save(answer.Body, filepath.Dir(dir))
	if err != nil {
		return fmt.Errorf("receive the layer: %w", err)
	}
	defer archive.close()
	if archive.digest != layer.Digest || archive.size != layer.Size {
		return fmt.Errorf(
			"the layer has %d bytes with the digest %s, and the manifest says %d bytes with the digest %s",
			archive.size, archive.digest, layer.Size, layer.Digest)
	}
	return unpack(ctx, archive, dir, layer.MediaType == mediaHelmLayer, defaultLimits)
}

// base returns a URL below that of the repository.
func (r *registry) base(path, query string) *url.URL {
	return &url.URL{Scheme: r.scheme, Host: r.host, Path: "/v2/" + r.repository + path, RawQuery: query}
}

// get sends a request. If the registry requires a token, it requests one and tries again.
func (r *registry) get(ctx context.Context, at *url.URL, accept string) (*http.Response, error) {
	for attempt := 0; ; attempt++ {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
		if err != nil {
			return nil, err
		}
		request.Header.Set("User-Agent", "clusterctl")
		if accept != "" {
			request.Header.Set("Accept", accept)
		}
		if r.authorization != "" {
			request.Header.Set("Authorization", r.authorization)
		}
		answer, err := r.client.Do(request)
		if err != nil {
			return nil, withoutURL(err)
		}
		if answer.StatusCode == http.StatusOK {
			return answer, nil
		}
		_ = answer.Body.Close()
		// Only the registry itself gets the credentials, or names the server that gets them.
		if from := answer.Request.URL; from.Host != at.Host || from.Scheme != at.Scheme {
			return nil, fmt.Errorf("the registry redirects to %s, which answers %s", from.Host, answer.Status)
		}
		switch {
		case answer.StatusCode == http.StatusUnauthorized && attempt == 0:
			if err := r.authenticate(ctx, answer.Header.Values("WWW-Authenticate")); err != nil {
				return nil, err
			}
		case answer.StatusCode == http.StatusUnauthorized, answer.StatusCode == http.StatusForbidden:
			return nil, fmt.Errorf("the registry refuses the credentials (%s)", answer.Status)
		case answer.StatusCode == http.StatusNotFound:
			return nil, fmt.Errorf("the registry has no such artifact, or does not show it with these credentials (%s)",
				answer.Status)
		default:
			return nil, fmt.Errorf("the registry answers %s", answer.Status)
		}
	}
}

// withoutURL returns the error of a request without its URL, which can contain a signature.
func withoutURL(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}
