package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// The definitions that a rollout needs. They make a start slower by 3 to 5 s, so the others are left out.
var kserveKinds = []string{"InferenceService", "ServingRuntime", "ClusterServingRuntime", "LLMInferenceService", "LLMInferenceServiceConfig"}

// renderKServe writes kserve.json: KServe's full definitions, which have no conversion webhooks.
func renderKServe(module, out string) error {
	work, err := os.MkdirTemp("", "controlplane-render-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	var chosen []map[string]any
	for _, folder := range []string{"full", "full/llmisvc"} {
		crds, err := kustomize(module, "config/crd", folder, filepath.Join(work, filepath.Base(folder)))
		if err != nil {
			return err
		}
		for _, crd := range crds {
			spec, _ := crd["spec"].(map[string]any)
			names, _ := spec["names"].(map[string]any)
			kind, _ := names["kind"].(string)
			if slices.Contains(kserveKinds, kind) {
				delete(spec, "conversion") // its webhook would not run
				chosen = append(chosen, crd)
			}
		}
	}
	if len(chosen) != len(kserveKinds) {
		return fmt.Errorf("KServe's module has %d of the %d definitions", len(chosen), len(kserveKinds))
	}
	return writeJSON(filepath.Join(out, "kserve.json"), chosen)
}

// kserveManifests are KServe's definitions; none without KServe. Its controllers and webhooks do not run.
func (c *controlPlane) kserveManifests() (objects, error) {
	if c.kserve == "" {
		return nil, nil
	}
	return readObjects(filepath.Join(c.kserve, "kserve.json"))
}
