package fetch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

// fetchChart returns the snapshot of a chart in a Helm repository.
func (f *Fetcher) fetchChart(ctx context.Context, s *gitops.Source,
	credentials map[string][]byte) (gitops.Snapshot, error) {
	spec, direct := &s.Spec, dialerOf(s.Namespace)
	at, err := url.Parse(spec.URL)
	if err != nil {
		return gitops.Snapshot{}, permanentError{err}
	}
	repository, err := newHTTP(direct, at, spec.Proxy, credentials)
	if err != nil {
		return gitops.Snapshot{}, err
	}
	defer repository.close()
	version, err := selectChart(ctx, repository, spec)
	if err != nil {
		return gitops.Snapshot{}, fmt.Errorf("read the repository's index: %w", err)
	}
	label := spec.Helm.Chart + "-" + version.Version
	archive, err := chartURL(repository.base, version)
	if err != nil {
		return gitops.Snapshot{}, fmt.Errorf("chart %s: %w", label, err)
	}
	from := repository
	if archive.Host != at.Host && archive.Host != repository.base.Host {
		// Another server must not receive the credentials.
		if from, err = newHTTP(direct, archive, spec.Proxy, map[string][]byte{keyCA: credentials[keyCA]}); err != nil {
			return gitops.Snapshot{}, err
		}
		defer from.close()
	}
	if isDigest(version.Digest) {
		return f.openArtifact(ctx, cacheKey(spec, credentials, version.Digest), label+"@"+version.Digest,
			func(dir string) error {
				archive, err := downloadChart(ctx, from, archive, filepath.Dir(dir))
				if err != nil {
					return err
				}
				defer archive.close()
				if archive.digest != version.Digest {
					return fmt.Errorf("it has the digest %s, and the index says %s", archive.digest, version.Digest)
				}
				return unpack(ctx, archive, dir, true, defaultLimits)
			})
	}
	// Without a digest in the index, the archive must be downloaded to find out whether it has changed.
	saved, err := downloadChart(ctx, from, archive, f.cache.dir)
	if err != nil {
		return gitops.Snapshot{}, fmt.Errorf("download %s: %w", label, err)
	}
	defer saved.close()
	return f.openArtifact(ctx, cacheKey(spec, credentials, saved.digest), label+"@"+saved.digest,
		func(dir string) error { return unpack(ctx, saved, dir, true, defaultLimits) })
}

// selectChart returns the version of a chart that a spec selects.
func selectChart(ctx context.Context, repository *httpSession, spec *gitsource.Spec) (chartVersion, error) {
	text := spec.Helm.Version
	if text == "" {
		text = "*"
	}
	constraint, err := gitsource.ParseConstraint(text)
	if err != nil {
		return chartVersion{}, err
	}
	answer, err := repository.request(ctx, http.MethodGet, "/index.yaml", "", "", nil)
	if err != nil {
		return chartVersion{}, err
	}
	defer answer.Body.Close()
	s := &chartSelector{chart: spec.Helm.Chart, constraint: constraint}
	if err := readIndex(answer.Body, s); err != nil {
		return chartVersion{}, err
	}
	switch {
	case s.seen == 0:
		return chartVersion{}, fmt.Errorf("it has no chart %q", spec.Helm.Chart)
	case s.best.Version == "":
		return chartVersion{}, fmt.Errorf("none of the %d versions of chart %q satisfies %q", s.seen, spec.Helm.Chart,
			text)
	}
	return s.best, nil
}

// chartURL returns the URL of a version's archive, which may be relative to the repository.
func chartURL(base *url.URL, version chartVersion) (*url.URL, error) {
	if len(version.URLs) == 0 {
		return nil, errors.New("the index has no URL for it")
	}
	root := *base
	root.Path, root.RawPath = strings.TrimSuffix(root.Path, "/")+"/", ""
	u, err := root.Parse(version.URLs[0])
	switch {
	case err != nil || u.Host == "" || u.User != nil:
		return nil, errors.New("the index has no usable URL for it")
	case u.Scheme != "https" && (u.Scheme != "http" || base.Scheme == "https"):
		return nil, fmt.Errorf("the index has a URL that begins with %q", u.Scheme)
	}
	return u, nil
}

// downloadChart writes an archive into a temporary file in a directory.
func downloadChart(ctx context.Context, from *httpSession, at *url.URL, dir string) (*saved, error) {
	moved := *from
	moved.base = &url.URL{Scheme: at.Scheme, Host: at.Host, Path: at.Path, RawPath: at.RawPath}
	answer, err := moved.request(ctx, http.MethodGet, "", at.RawQuery, "", nil)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return save(answer.Body, dir)
}
