// What people see: each verb's document as text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "core/base/shown.h"

namespace tilewright::cli {

using namespace shown;

/// A verb's document for people; of a verb that has no table, document_text.
std::string table_of(std::string_view verb, const nlohmann::ordered_json& j);
/// The document as --json prints it.
std::string document_text(const nlohmann::ordered_json& j);

std::string models_table(const nlohmann::ordered_json& j);
std::string machines_table(const nlohmann::ordered_json& j);
std::string workloads_table(const nlohmann::ordered_json& j);
/// targets and meters
std::string availability_table(const nlohmann::ordered_json& j);
std::string doctor_table(const nlohmann::ordered_json& j);
std::string experiments_table(const nlohmann::ordered_json& j);
std::string import_table(const nlohmann::ordered_json& j);
std::string explain_table(const nlohmann::ordered_json& j);
std::string compare_table(const nlohmann::ordered_json& j);
std::string plan_table(const nlohmann::ordered_json& j);
/// predict, and simulate's first part
std::string traffic_table(const nlohmann::ordered_json& j);
std::string simulate_table(const nlohmann::ordered_json& j);
std::string emit_table(const nlohmann::ordered_json& j);
std::string run_table(const nlohmann::ordered_json& j);
/// explain and compare of a network; of explain each layer.
std::string layers_table(const nlohmann::ordered_json& j, bool each);
/// run of a network.
std::string network_table(const nlohmann::ordered_json& j);
/// A meter's traffic, and with --executed how it comes about.
std::string measure_table(const nlohmann::ordered_json& j);
/// Parts of emit's and run's, empty where there are no CUDA kernels; run's with --batch.
std::string cuda_builds_table(const nlohmann::ordered_json& j);
std::string cuda_launches_table(const nlohmann::ordered_json& j);
/// Parts of emit's, run's and measure's, empty where there are no programs for the NPU.
std::string npu_kernels_table(const nlohmann::ordered_json& j);
/// validate --truth emulator.
std::string validate_npu_table(const nlohmann::ordered_json& j);
/// The least bytes by buffer size: about two rows an octave, and every level and measurement.
std::string curve_table(const nlohmann::ordered_json& j);
std::string batch_table(const nlohmann::ordered_json& j);
std::string validate_table(const nlohmann::ordered_json& j);
std::string reproduce_table(const nlohmann::ordered_json& j);

}  // namespace tilewright::cli
