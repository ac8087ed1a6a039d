package kms

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	stored "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2"
)

// These are the API's limits, in bytes, on what a plugin returns.
const (
	maxKeyID       = 1 << 10
	maxWrapped     = 1 << 10
	maxAnnotations = 32 << 10
)

// seedType and keyType define how the key of a value follows from the secret that the plugin has encrypted.
const (
	seedType = stored.EncryptedDEKSourceType_HKDF_SHA256_XNONCE_AES_GCM_SEED
	keyType  = stored.EncryptedDEKSourceType_AES_GCM_KEY
)

// wrapped is a seed as the plugin encrypted it, with everything that the plugin needs to decrypt it. It is an
// EncryptedObject without data.
type wrapped = *storedObject

type storedObject = stored.EncryptedObject

// encodeStored returns the stored form of a value that was encrypted with a key of w.
func encodeStored(w wrapped, data []byte) ([]byte, error) {
	return proto.Marshal(&storedObject{
		EncryptedData: data, KeyID: w.KeyID, EncryptedDEKSource: w.EncryptedDEKSource, Annotations: w.Annotations,
		EncryptedDEKSourceType: w.EncryptedDEKSourceType,
	})
}

// decodeStored splits a stored value into the encrypted seed and the data.
func decodeStored(value []byte) (wrapped, []byte, error) {
	o := &storedObject{}
	if err := proto.Unmarshal(value, o); err != nil {
		return nil, nil, fmt.Errorf("the stored value is not an EncryptedObject: %w", err)
	}
	data := o.EncryptedData
	o.EncryptedData = nil
	if err := checkWrapped(o); err != nil {
		return nil, nil, fmt.Errorf("the stored value: %w", err)
	}
	if len(data) == 0 {
		return nil, nil, errors.New("the stored value has no data")
	}
	return o, data, nil
}

// checkWrapped returns an error if a plugin's response exceeds the limits of the API.
func checkWrapped(w wrapped) error {
	if err := checkKeyID(w.KeyID); err != nil {
		return err
	}
	switch n := len(w.EncryptedDEKSource); {
	case w.EncryptedDEKSourceType != seedType && w.EncryptedDEKSourceType != keyType:
		return fmt.Errorf("its encrypted key is of type %d, which is not known here", w.EncryptedDEKSourceType)
	case n == 0:
		return errors.New("the encrypted key is empty")
	case n > maxWrapped:
		return fmt.Errorf("the encrypted key has %d bytes, %d are allowed", n, maxWrapped)
	}
	size := 0
	for key, value := range w.Annotations {
		if errs := validation.IsFullyQualifiedDomainName(field.NewPath("annotations"), key); len(errs) > 0 {
			return errs.ToAggregate()
		}
		size += len(key) + len(value)
	}
	if size > maxAnnotations {
		return fmt.Errorf("the annotations have %d bytes, %d are allowed", size, maxAnnotations)
	}
	return nil
}

func checkKeyID(id string) error {
	switch {
	case id == "":
		return errors.New("the key_id is empty")
	case len(id) > maxKeyID:
		return fmt.Errorf("the key_id has %d bytes, %d are allowed", len(id), maxKeyID)
	}
	return nil
}

// seedID returns a digest that identifies an encrypted seed.
func seedID(w wrapped) (sum [sha256.Size]byte) {
	h := sha256.New()
	part := func(b []byte) {
		_ = binary.Write(h, binary.BigEndian, int64(len(b))) // a hash accepts all writes
		h.Write(b)
	}
	part([]byte{byte(w.EncryptedDEKSourceType)})
	part(w.EncryptedDEKSource)
	part([]byte(w.KeyID))
	for _, key := range slices.Sorted(maps.Keys(w.Annotations)) {
		part([]byte(key))
		part(w.Annotations[key])
	}
	h.Sum(sum[:0])
	return sum
}
