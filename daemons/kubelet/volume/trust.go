package volume

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// trustAnchors returns the contents of a trust anchor source: the certificates of the selected bundles without
// duplicates, in a stable order and without other text. An optional source without bundles is an empty file.
func (c contents) trustAnchors(ctx context.Context, p *corev1.ClusterTrustBundleProjection) ([]byte, error) {
	optional := p.Optional != nil && *p.Optional
	name, signer, selector := "", "", labels.Everything()
	switch {
	case p.Name != nil:
		name = *p.Name
	case p.SignerName != nil:
		signer = *p.SignerName
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(p.LabelSelector); err != nil {
			return nil, fmt.Errorf("select trust bundles of signer %s: %w", signer, err)
		}
	default:
		return nil, fmt.Errorf("a source of trust anchors names neither a bundle nor a signer")
	}
	bundles, err := c.source.TrustBundles(ctx, name, signer)
	if err != nil && (!optional || !apierrors.IsNotFound(err)) {
		return nil, err
	}
	found, selected := map[string]bool{}, 0
	for i := range bundles {
		if !selector.Matches(labels.Set(bundles[i].Labels)) {
			continue
		}
		selected++
		for block, rest := pem.Decode([]byte(bundles[i].Spec.TrustBundle)); block != nil; block,
			rest = pem.Decode(rest) {
			found[string(block.Bytes)] = true
		}
	}
	if selected == 0 && !optional {
		return nil, fmt.Errorf("combination of signerName %s and labelSelector matched zero ClusterTrustBundles",
			signer)
	}
	var out bytes.Buffer
	for _, der := range slices.Sorted(maps.Keys(found)) {
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: []byte(der)}); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}
